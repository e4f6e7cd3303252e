"""One gateway with a webhook, sessions and bound tokens, for the rows of a whole file."""

import hashlib
import hmac
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from antiphon.app import gateway_app, open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.gateway.server import bind, serving
from tests.engine.stage import ManualClock
from tests.gateway.served import TOKEN, Json, Served, new_client

SECRET = "s3cret-of-the-door-bell"
"""Of the webhooks `door` and `window` alike."""


@dataclass(frozen=True, slots=True)
class House:
    served: Served
    clock: ManualClock
    nobody: httpx.AsyncClient
    """Without a credential."""

    @property
    def app(self) -> App:
        return self.served.app

    async def token(self, key: str) -> str:
        """A token that is bound to the session."""
        target = self.app.services.sessions.target(key)
        return (await self.app.services.tokens.create(OWNER, target))[1]

    async def as_bound(self, key: str, tool: str, **arguments: Any) -> Json:
        """What the tool answers to the holder of a token that is bound to the session."""
        headers = {"Authorization": f"Bearer {await self.token(key)}"}
        answer = await self.nobody.post(f"/tools/{tool}", json={"arguments": arguments}, headers=headers)
        return answer.json()

    def signed(
        self, body: bytes, *, name: str = "door", way: str = "in", age: int = 0, secret: str = SECRET
    ) -> dict[str, str]:
        """The headers of a webhook's message, made without the code under test."""
        time = str(int(self.clock.now().timestamp()) - age)
        digest = hmac.new(secret.encode(), f"v2.{way}.{name}.{time}.".encode() + body, hashlib.sha256).hexdigest()
        return {
            "Content-Type": "application/json",
            "Antiphon-Timestamp": time,
            "Antiphon-Signature": f"v2={digest}",
        }

    async def ring(self, peer: str, text: str, message_id: str, **fields: Any) -> httpx.Response:
        """A peer's message by the webhook `door`, signed as it must be."""
        body = json.dumps({"messageId": message_id, "peer": peer, "text": text, **fields}).encode()
        return await self.nobody.post("/channels/webhook/door", content=body, headers=self.signed(body))


@asynccontextmanager
async def open_house(home: Path, parts: Parts | None = None, **settings: Any) -> AsyncGenerator[House]:
    clock = parts.clock if parts is not None and isinstance(parts.clock, ManualClock) else ManualClock()
    webhooks = {"door": {"secret": SECRET, "queue_mode": "enqueue"}, "window": {"secret": SECRET}}
    limits = {"guest": {"requestsPerMinute": 10**6, "burst": 10**6}}  # a row is no crowd
    tree: Json = {"gateway": {"drain_seconds": 0}, "channels": {"webhook": webhooks}, "limits": limits, **settings}
    parts = parts or Parts(clock=clock)
    async with (
        open_app(home, Config.model_validate(tree), parts) as app,
        serving(gateway_app(app, TOKEN), bind("127.0.0.1", 0), on_stop=app.services.hub.close) as url,
        new_client(url, TOKEN) as client,
        new_client(url) as nobody,
    ):
        yield House(Served(app, url, client), clock, nobody)
