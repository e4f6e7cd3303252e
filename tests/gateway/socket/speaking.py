"""A client of the WebSocket for tests."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from websockets.asyncio.client import ClientConnection, connect

from tests.gateway.served import TOKEN, Json, Served
from tests.gateway.socket.described import check_answer, check_event
from tests.waiting import SECONDS

MIB = 1024 * 1024


@dataclass(slots=True)
class Speaker:
    """One connection. Reads frames in order; events that came while an answer was awaited are kept."""

    socket: ClientConnection
    hello: Json = field(default_factory=dict[str, Any])
    events: list[Json] = field(default_factory=list[Json])
    answers: dict[str | None, Json] = field(default_factory=dict[str | None, Json])
    methods: dict[str, str] = field(default_factory=dict[str, str])
    """Of the requests, by id."""
    _count: int = 0

    async def send(self, method: str, params: object = None, *, id: str | None = None) -> str:
        self._count += 1
        id = id or str(self._count)
        frame: Json = {"type": "req", "id": id, "method": method}
        self.methods[id] = method
        await self.socket.send(json.dumps(frame if params is None else {**frame, "params": params}))
        return id

    async def read(self) -> Json:
        """The next frame, which must be as the description says. Raises `ConnectionClosed`."""
        with anyio.fail_after(SECONDS):
            frame: Json = json.loads(await self.socket.recv())
        if frame["type"] == "event":
            check_event(frame)
        else:
            check_answer(frame, self.methods.pop(frame["id"], None))
        return frame

    async def answer(self, id: str | None) -> Json:
        while id not in self.answers:
            frame = await self.read()
            if frame["type"] == "event":
                self.events.append(frame)
            else:
                self.answers[frame["id"]] = frame
        return self.answers.pop(id)

    async def ask(self, method: str, /, **params: Any) -> Json:
        """The answering frame."""
        return await self.answer(await self.send(method, params))

    async def call(self, method: str, /, **params: Any) -> Json:
        """The payload; fails for an error."""
        answer = await self.ask(method, **params)
        assert answer["ok"], answer
        return answer.get("payload", {})

    async def event(self, *names: str) -> Json:
        """The next event, or the next of these names; others are passed over."""
        while True:
            while self.events:
                event = self.events.pop(0)
                if not names or event["event"] in names:
                    return event
            frame = await self.read()
            if frame["type"] == "event":
                self.events.append(frame)
            else:
                self.answers[frame["id"]] = frame


def address(served: Served) -> str:
    return served.url.replace("http://", "ws://") + "/ws"


@asynccontextmanager
async def opened_at(url: str) -> AsyncGenerator[Speaker]:
    """A socket of the gateway at that address, on which nothing was said."""
    socket_url = url.replace("http://", "ws://") + "/ws"
    async with connect(socket_url, compression=None, open_timeout=SECONDS, proxy=None, max_size=16 * MIB) as socket:
        yield Speaker(socket)


@asynccontextmanager
async def opened(served: Served, *, port: int | None = None, **given: Any) -> AsyncGenerator[Speaker]:
    """A socket on which nothing was said."""
    url = given.pop("uri", None) or address(served) if port is None else f"ws://127.0.0.1:{port}/ws"
    given.setdefault("max_size", 16 * MIB)
    async with connect(url, compression=None, open_timeout=SECONDS, proxy=None, close_timeout=1, **given) as socket:
        yield Speaker(socket)


CONNECT: Json = {"protocol": {"min": 1, "max": 1}, "client": "test"}


@asynccontextmanager
async def speaking(
    served: Served, token: str | None = TOKEN, *, port: int | None = None, **given: Any
) -> AsyncGenerator[Speaker]:
    """A connected client."""
    async with opened(served, port=port, **given) as speaker:
        params = CONNECT if token is None else CONNECT | {"token": token}
        speaker.hello = await speaker.call("connect", **params)
        yield speaker
