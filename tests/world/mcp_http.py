"""A raw MCP server over HTTP on loopback, which answers in the very bytes that it is given."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream

from tests.world.mcp_answers import answers_to


@dataclass(frozen=True)
class Refused:
    """An answer of HTTP to a request that the server does not carry out."""

    status: str
    kind: str
    body: str


@dataclass
class RawServer:
    script: dict[str, Any]
    streams: bool = False
    """Whether answers come as server-sent events."""
    refusal: Refused | None = None
    """What requests get that name a session of before."""
    refuses_calls: bool = False
    """Whether calls of `odd` get it too, whatever their session."""
    sessions: list[str] = field(default_factory=list[str])
    """Of the server's life, the newest last; a restart forgets them."""
    calls: list[str] = field(default_factory=list[str])
    """Names of the called tools."""
    features: set[str] = field(default_factory=set[str])
    """What requests asked for by their header."""
    url: str = ""

    def restart(self) -> None:
        self.sessions.clear()

    def answer(self, head: str, body: bytes) -> bytes:
        request: dict[str, Any] = json.loads(body)
        named = (line.partition(":") for line in head.splitlines())
        self.features.update(value.strip() for name, _, value in named if name.lower() == "x-mcp-features")
        session = next(
            (line.split(":", 1)[1].strip() for line in head.splitlines() if line.lower().startswith("mcp-session-id:")),
            None,
        )
        if request["method"] == "initialize":
            self.sessions.append(f"session-{len(self.calls)}-{len(self.sessions)}-{id(request)}")
        elif session is not None and session not in self.sessions and self.refusal is not None:
            return _response(self.refusal.status, self.refusal.kind, self.refusal.body.encode())
        if request["method"] == "tools/call":
            self.calls.append(request["params"]["name"])
            if self.refuses_calls and request["params"]["name"] == "odd":
                assert self.refusal is not None
                return _response(self.refusal.status, self.refusal.kind, self.refusal.body.encode())
        answers = answers_to(request, self.script)
        if not answers:
            return _response("202 Accepted", "application/json", b"")
        extra = f"Mcp-Session-Id: {self.sessions[-1]}\r\n" if request["method"] == "initialize" else ""
        if self.streams:
            events = b"".join(b"event: message\ndata: " + answer + b"\n\n" for answer in answers)
            return _response("200 OK", "text/event-stream", events, extra)
        return _response("200 OK", "application/json", answers[0], extra)


def _response(status: str, kind: str, body: bytes, extra: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


@asynccontextmanager
async def raw_server(server: RawServer) -> AsyncGenerator[RawServer]:
    async def serve(stream: SocketStream) -> None:
        async with stream:
            data = b""
            while True:
                while b"\r\n\r\n" not in data:
                    try:
                        data += await stream.receive()
                    except (anyio.EndOfStream, anyio.BrokenResourceError):
                        return
                head, _, data = data.partition(b"\r\n\r\n")
                lines = head.decode().lower().splitlines()
                length = next((int(line.split(":")[1]) for line in lines if line.startswith("content-length:")), 0)
                while len(data) < length:
                    data += await stream.receive()
                body, data = data[:length], data[length:]
                if head.startswith(b"POST"):
                    await stream.send(server.answer(head.decode(), body))
                else:
                    await stream.send(_response("405 Method Not Allowed", "text/plain", b""))

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        server.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/mcp"
        tasks.start_soon(listener.serve, serve)
        yield server
        tasks.cancel_scope.cancel()
