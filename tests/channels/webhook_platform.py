"""A program behind a webhook as the suite for channels sees a platform: it posts until it is heard, and knows ids."""

import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio
import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from antiphon.channels.signature import Direction, sign
from antiphon.channels.webhook.kind import WEBHOOK
from antiphon.testing.channels import Json, Mishap
from antiphon.testing.faults import Fault, faulty_response
from antiphon.testing.serving import WAIT_SECONDS, FakeServer, serve_fake

SECRET: Final = "s3cret-of-the-door-bell"
FAULTS: Final = {Mishap.LOST: Fault.DROP, Mishap.UNANSWERED: Fault.ACT_AND_DROP, Mishap.HANGING: Fault.HANG}
PAUSE_SECONDS: Final = 0.1


class WebhookPlatform(FakeServer):
    """Implements `Platform`."""

    kind = WEBHOOK

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[str, Json] = {}
        """What was posted, by the delivery's id."""
        self._faults = deque[Fault]()
        self._left: set[str] = set()
        self._gateway = ""
        self._written, self._read = anyio.create_memory_object_stream[Json](1000)

    def routes(self) -> Sequence[Route]:
        return [Route("/", self._take, methods=["POST"])]

    async def _take(self, request: Request) -> Response:
        posted = json.loads(await request.body())
        fault = self._faults.popleft() if self._faults else None
        if fault is not None and not fault.acts:
            return await faulty_response(fault, self.stopped, 1)
        if posted["to"] in self._left:
            return Response(status_code=410)
        self._texts[posted["id"]] = posted
        return JSONResponse({}) if fault is None else await faulty_response(fault, self.stopped, 1)

    def section(self, gateway_url: str) -> Json:
        self._gateway = gateway_url
        return {
            "door": {
                "secret": SECRET,
                "url": f"http://127.0.0.1:{self.port}/",
                "queue_mode": "enqueue",
                "quick_turns": 0,
            }
        }

    def id_of(self, person: str) -> str:
        return person

    async def write(self, person: str, text: str, thread: str | None = None) -> None:
        message = {"messageId": f"m-{time.monotonic_ns()}", "peer": person, "text": text}
        await self._written.send(message if thread is None else {**message, "threadId": thread})

    async def post(self) -> None:
        """Posts what is written, each message until it is taken in."""
        async with httpx.AsyncClient(trust_env=False, timeout=WAIT_SECONDS) as client:
            async for message in self._read:
                while not await self._is_taken(client, json.dumps(message).encode()):
                    await anyio.sleep(PAUSE_SECONDS)

    async def _is_taken(self, client: httpx.AsyncClient, body: bytes) -> bool:
        now = int(time.time())
        headers = {
            "Content-Type": "application/json",
            "Antiphon-Timestamp": str(now),
            "Antiphon-Signature": sign(SECRET, Direction.IN, "door", timestamp=now, body=body),
        }
        try:
            answer = await client.post(f"{self._gateway}/channels/webhook/door", content=body, headers=headers)
        except httpx.TransportError:
            return False
        return answer.is_success

    async def shown(self, person: str, thread: str | None = None) -> Sequence[str]:
        texts = [*self._texts.values()]
        return [each["text"] for each in texts if (each["to"], each.get("threadId")) == (person, thread)]

    async def received(self, person: str) -> Sequence[tuple[str, bytes]]:
        return []

    async def glimpsed(self, person: str) -> Sequence[str]:
        return await self.shown(person)

    async def remove_bot(self, person: str) -> None:
        self._left.add(person)

    async def befall(self, mishap: Mishap) -> None:
        self._faults.append(FAULTS[mishap])

    async def reactions(self, person: str) -> Sequence[str]:
        return []

    async def press(self, person: str, label: str) -> bool:
        return False


@asynccontextmanager
async def webhook_platform() -> AsyncGenerator[WebhookPlatform]:
    async with serve_fake(WebhookPlatform()) as platform, anyio.create_task_group() as tasks:
        tasks.start_soon(platform.post)
        yield platform
        tasks.cancel_scope.cancel()
