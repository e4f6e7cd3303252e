"""The gateway's own HTTP application, asked without a socket, so that thousands of requests cost little."""

import json
from collections.abc import AsyncGenerator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import anyio
from msgspec import Struct

from antiphon.gateway.asgi import AsgiApp

SECONDS: Final = 120.0
"""How long an answer or a stream may take; only a failing test waits this long."""


class DoorAnswer(Struct, frozen=True):
    status: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(slots=True)
class OpenStream:
    """A stream of events that is being followed."""

    data: bytearray = field(default_factory=bytearray)
    is_over: bool = False
    _changed: anyio.Event = field(default_factory=anyio.Event)

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")

    def add(self, part: bytes, *, is_last: bool) -> None:
        self.data += part
        self.is_over |= is_last
        self._changed.set()

    async def until(self, words: str) -> None:
        """Returns when the stream has these words, or has ended."""
        with anyio.fail_after(SECONDS):
            while words.encode() not in self.data and not self.is_over:
                self._changed = anyio.Event()
                await self._changed.wait()


class DoorSocket:
    """A WebSocket in memory. `stream` holds all frames that came, as they were sent."""

    stall_seconds: Final = SECONDS
    is_writable: Final = True

    def __init__(self) -> None:
        self.stream = OpenStream()
        self._sent, self._incoming = anyio.create_memory_object_stream[MutableMapping[str, Any]](1000)
        self._count = 0

    async def receive(self) -> MutableMapping[str, Any]:
        return await self._incoming.receive()

    async def ask(self, method: str, **params: object) -> None:
        """Sends the request and returns when it is answered, or refused and the connection ended."""
        self._count += 1
        id = f"request {self._count}"
        frame = {"type": "req", "id": id, "method": method, "params": params}
        await self._sent.send({"type": "websocket.receive", "bytes": json.dumps(frame).encode()})
        await self.stream.until(f'"type":"res","id":"{id}"')

    async def begin(self) -> None:
        await self._sent.send({"type": "websocket.connect"})

    def prove(self) -> None:
        """Nothing is limited here."""

    def write(self, frames: bytes) -> None:
        self.stream.add(frames, is_last=False)

    async def wait_writable(self) -> None:
        """It always is."""

    def end(self, code: int, reason: str) -> None:
        self.stream.add(f"closed {code} {reason}".encode(), is_last=True)
        self._sent.send_nowait({"type": "websocket.disconnect", "code": code})


class Door:
    """Asks as one caller or another, by their tokens."""

    def __init__(self, application: AsgiApp) -> None:
        self._application = application

    async def ask(
        self, method: str, path: str, *, token: str | None = None, body: object = None, headers: Mapping[str, str] = {}
    ) -> DoorAnswer:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        parts = [{"type": "http.request", "body": content, "more_body": False}]
        status, received = 0, bytearray()

        async def receive() -> MutableMapping[str, Any]:
            if parts:
                return parts.pop()
            await anyio.sleep_forever()
            raise AssertionError

        async def send(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                received.extend(message.get("body", b""))

        with anyio.fail_after(SECONDS):
            await self._application(
                _scope(method, path, token=token, headers=headers, length=len(content)), receive, send
            )
        return DoorAnswer(status, received.decode("utf-8", "replace"))

    @asynccontextmanager
    async def follow(self, path: str, *, token: str | None) -> AsyncGenerator[OpenStream]:
        """The stream at the address, until left."""
        stream, begun = OpenStream(), anyio.Event()
        parts = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> MutableMapping[str, Any]:
            if parts:
                return parts.pop()
            await anyio.sleep_forever()
            raise AssertionError

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                stream.add(f"status {message['status']}\n\n".encode(), is_last=False)
                begun.set()
            else:
                stream.add(message.get("body", b""), is_last=not message.get("more_body", False))

        async def answer() -> None:
            await self._application(_scope("GET", path, token=token, headers={}, length=0), receive, send)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            with anyio.fail_after(SECONDS):
                await begun.wait()
            try:
                yield stream
            finally:
                tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def connect(self, *, token: str) -> AsyncGenerator[DoorSocket]:
        """A WebSocket that is connected with the token, until left."""
        socket = DoorSocket()
        scope = _scope("GET", "/ws", token=token, headers={}, length=0)
        scope.update({"type": "websocket", "subprotocols": [], "antiphon.socket": socket})
        await socket.begin()

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] != "websocket.accept":
                socket.stream.add(json.dumps(message, default=str).encode(), is_last=True)

        async def answer() -> None:
            await self._application(scope, socket.receive, send)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            try:
                await socket.ask("connect", protocol={"min": 1, "max": 1}, client="door")
                yield socket
            finally:
                tasks.cancel_scope.cancel()


def _scope(
    method: str, address: str, *, token: str | None, headers: Mapping[str, str], length: int
) -> MutableMapping[str, Any]:
    path, _, query = address.partition("?")
    sent = {"host": "localhost", "content-length": str(length), **headers}
    if length:
        sent.setdefault("content-type", "application/json")
    if token is not None:
        sent["authorization"] = f"Bearer {token}"
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
        "state": {},
        "antiphon.abort": lambda: None,
    }
