"""A gateway on a free port within the test's own event loop, and what its clients need."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio
import httpx

from antiphon.app import gateway_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.gateway.guard import AsgiApp
from antiphon.gateway.server import bind, serving
from tests.conftest import OpenHome
from tests.waiting import SECONDS

TOKEN = "ant_" + "0" * 48

Json: TypeAlias = dict[str, Any]
BuildApp: TypeAlias = Callable[[App, str], AsgiApp]


@dataclass(frozen=True, slots=True)
class Served:
    """A running gateway, and a client that is its owner."""

    app: App
    url: str
    client: httpx.AsyncClient

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def post(self, key: str, text: str, **fields: object) -> Json:
        """Posts and waits for the run's end."""
        answer = await self.client.post(f"/sessions/{key}/messages?wait={SECONDS}", json={"text": text, **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def append(self, key: str, text: str, **fields: object) -> int:
        answer = await self.client.post(f"/sessions/{key}/messages?append=1", json={"text": text, **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()["seq"]

    async def open(self, key: str) -> Json:
        answer = await self.client.post("/sessions", json={"key": key})
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    async def messages(self, key: str, **query: Any) -> list[Json]:
        answer = await self.client.get(f"/sessions/{key}/history", params={"limit": 1000, **query})
        assert answer.status_code == 200, answer.text
        return answer.json()["messages"]


@asynccontextmanager
async def serve(
    open_home: OpenHome,
    settings: Json | None = None,
    parts: Parts | None = None,
    *,
    build: BuildApp = gateway_app,
) -> AsyncGenerator[Served]:
    config = Config.model_validate({"gateway": {"drain_seconds": 0}} | (settings or {}))
    async with open_home(config, parts) as app:
        listener = bind("127.0.0.1", 0)
        async with (
            serving(build(app, TOKEN), listener, on_stop=app.services.hub.close) as url,
            new_client(url, TOKEN) as client,
        ):
            yield Served(app, url, client)


def new_client(url: str, token: str | None = None) -> httpx.AsyncClient:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.AsyncClient(
        base_url=url, headers=headers, timeout=SECONDS, limits=limits, trust_env=False, verify=False
    )


@dataclass(frozen=True, slots=True)
class Sent:
    """One event of a stream, as a browser would dispatch it."""

    event: str
    data: Any
    id: int | None

    @property
    def text(self) -> str:
        return "".join(part.get("text", "") for part in self.data["content"])


class EventParser:
    """Makes events of bytes; what is not ended by an empty line is not an event."""

    def __init__(self) -> None:
        self._rest = b""
        self.comments: list[str] = []

    def feed(self, data: bytes) -> list[Sent]:
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        return [sent for block in blocks if (sent := self._event(block.decode())) is not None]

    def _event(self, block: str) -> Sent | None:
        fields: dict[str, str] = {}
        for line in block.splitlines():
            name, _, value = line.partition(":")
            if name:
                fields[name] = value.removeprefix(" ")
            else:
                self.comments.append(value.strip())
        if "data" not in fields:
            return None
        id = fields.get("id")
        return Sent(fields["event"], json.loads(fields["data"]), None if id is None else int(id))


class Stream:
    """An open stream of events."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.parser = EventParser()
        self._chunks = response.aiter_bytes()
        self._events: list[Sent] = []

    async def next(self) -> Sent:
        """The next event. Raises `StopAsyncIteration` at the stream's end."""
        while not self._events:
            self._events += self.parser.feed(await anext(self._chunks))
        return self._events.pop(0)

    async def until(self, *wanted: str) -> list[Sent]:
        """Events up to and with the first of one of these names."""
        found = [await self.next()]
        while found[-1].event not in wanted:
            found.append(await self.next())
        return found

    async def rest(self) -> list[Sent]:
        """Everything up to the end of the stream."""
        found: list[Sent] = []
        while True:
            try:
                found.append(await self.next())
            except StopAsyncIteration:
                return found


@asynccontextmanager
async def following(
    client: httpx.AsyncClient, address: str, *, last_id: int | None = None, body: Json | None = None
) -> AsyncGenerator[Stream]:
    headers = {} if last_id is None else {"Last-Event-ID": str(last_id)}
    method = "GET" if body is None else "POST"
    with anyio.fail_after(SECONDS):
        async with client.stream(method, address, headers=headers, json=body) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"].startswith("text/event-stream")
            yield Stream(response)
