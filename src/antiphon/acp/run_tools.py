"""Offers a run's tools to its harness: MCP over HTTP at `/mcp`, on loopback. The token is the run's, and gone with it.

A call of the harness is a call of its run, with the rights, approvals and records of any. Contract: foreign_agents 2.
Our own server of MCP is the gateway's, and not every process has one; this one opens its port with the first run.
"""

import asyncio
import json
import logging
import secrets
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

import anyio
import h11
from anyio.abc import TaskGroup
from msgspec import Struct

from antiphon.acp.background import background_tasks
from antiphon.agents.model import ToolSchema
from antiphon.domain.errors import AntiphonError
from antiphon.domain.message import JsonObject, JsonValue
from antiphon.incoming import check_values
from antiphon.mcp.server import FAILURES, INSTRUCTIONS
from antiphon.version import VERSION

logger = logging.getLogger(__name__)
HOST: Final = "127.0.0.1"
PATH: Final = b"/mcp"
MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_CONNECTIONS: Final = 200
PING_SECONDS: Final = 15.0
"""Between signs of life while a call waits, so that no client gives it up."""
IDLE_SECONDS: Final = 120.0
VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The versions of MCP whose requests are answered, newest first."""
_CHUNK = 64 * 1024
_EVENTS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]


class RunOfHarness(Protocol):
    """The run whose tools are offered."""

    async def schemas(self) -> Sequence[ToolSchema]: ...

    async def call(self, name: str, arguments: JsonObject) -> JsonObject:
        """The answer of a call that the run makes; returns once it has its result, however long it waits for a yes."""
        ...


class Offer(Struct, frozen=True, kw_only=True):
    """How a harness reaches the tools of its run."""

    url: str
    token: str


class _StatusAlone(Exception):
    """A request that is answered with a status alone."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


class _ToolsRequest(NamedTuple):
    run: RunOfHarness
    message: JsonObject

    @property
    def method(self) -> str:
        return str(self.message.get("method", ""))

    @property
    def params(self) -> JsonObject:
        params = self.message.get("params")
        return params if isinstance(params, dict) else {}

    def answer(self, result: JsonObject) -> bytes:
        return _line({"jsonrpc": "2.0", "id": self.message.get("id"), "result": result})

    def error(self, number: int, text: str) -> bytes:
        return _line({"jsonrpc": "2.0", "id": self.message.get("id"), "error": {"code": number, "message": text}})


class RunTools:
    """Serves the tools of the runs that are offered. `run` must be running."""

    def __init__(self) -> None:
        self._runs: dict[str, RunOfHarness] = {}
        self._tasks: TaskGroup | None = None
        self._started = anyio.Event()
        self._port: int | None = None
        self._opening = anyio.Lock()
        self._connections = 0

    async def run(self) -> None:
        """Serves until cancelled; opens nothing before a run is offered."""
        async with anyio.create_task_group() as self._tasks:
            self._started.set()
            await anyio.sleep_forever()

    async def offer(self, run: RunOfHarness) -> Offer:
        """Offers the run's tools from now on, until `withdraw`."""
        await self._started.wait()
        async with self._opening:
            if self._port is None:
                listener = socket.create_server((HOST, 0))
                self._port = int(listener.getsockname()[1])
                await self.listen(listener)
        token = secrets.token_urlsafe(32)
        self._runs[token] = run
        return Offer(url=f"http://{HOST}:{self._port}{PATH.decode()}", token=token)

    def withdraw(self, offer: Offer) -> None:
        self._runs.pop(offer.token, None)

    async def listen(self, listener: socket.socket) -> None:
        """Answers on the socket from now on; it may be in the network of a sandbox."""
        assert self._tasks is not None
        await self._tasks.start(self._listen, listener)

    async def _listen(self, listener: socket.socket, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        assert self._tasks is not None
        tasks = self._tasks

        def begin(reader: StreamReader, writer: StreamWriter) -> None:
            if self._connections >= MAX_CONNECTIONS:
                writer.close()
            else:
                tasks.start_soon(self._serve, reader, writer)

        server = await asyncio.start_server(begin, sock=listener)
        try:
            task_status.started()
            await anyio.sleep_forever()
        finally:
            server.close()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Answers the requests of one connection, one after the other."""
        self._connections += 1
        connection = _ToolsConnection(reader, writer)
        try:
            while await connection.begin():
                await self._answer(connection)
        except (OSError, h11.ProtocolError, TimeoutError, EOFError):
            pass  # the other side has gone, or speaks no HTTP
        except Exception:
            logger.exception("Request of a harness failed", extra={"action": "harness_request_failed"})
        finally:
            self._connections -= 1
            writer.close()

    async def _answer(self, connection: "_ToolsConnection") -> None:
        try:
            request = await self._read(connection)
            if request.message.get("id") is None:
                raise _StatusAlone(202)
            if request.method == "tools/call":
                await _call(connection, request)
            else:
                await connection.send(200, await _result(request), [(b"content-type", b"application/json")])
        except _StatusAlone as refused:
            await connection.send(refused.status)

    async def _read(self, connection: "_ToolsConnection") -> _ToolsRequest:
        head, body = await connection.read()
        headers = dict(head.headers)
        kind, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        found = next((run for known, run in self._runs.items() if secrets.compare_digest(known, token)), None)
        if kind.lower() != "bearer" or found is None or b"origin" in headers:  # no browser asks here
            raise _StatusAlone(401)
        if head.target.partition(b"?")[0] != PATH:
            raise _StatusAlone(404)
        if head.method != b"POST":
            raise _StatusAlone(405)
        try:
            check_values(body)
            message: JsonValue = json.loads(body)
        except (ValueError, RecursionError, AntiphonError):
            raise _StatusAlone(400) from None
        if not isinstance(message, dict):
            raise _StatusAlone(400)
        return _ToolsRequest(found, message)


class _ToolsConnection:
    """HTTP over one connection."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER)

    async def begin(self) -> bool:
        """Whether another request may come."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        return self._http.our_state is h11.IDLE

    async def read(self) -> tuple[h11.Request, bytes]:
        """The next request with its body. Raises `EOFError` if none comes."""
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._http.next_event()
            match event:
                case h11.Request():
                    head = event
                    if head.headers and self._http.they_are_waiting_for_100_continue:
                        await self._send(h11.InformationalResponse(status_code=100, headers=[]))
                case h11.Data():
                    body += event.data
                    if len(body) > MAX_BODY_BYTES:
                        raise _StatusAlone(413)
                case h11.EndOfMessage():
                    assert head is not None
                    return head, bytes(body)
                case h11.ConnectionClosed():
                    raise EOFError
                case _:
                    with anyio.fail_after(IDLE_SECONDS):
                        self._http.receive_data(await self._reader.read(_CHUNK))

    async def send(self, status: int, body: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        length = (b"content-length", str(len(body)).encode())
        await self._send(h11.Response(status_code=status, headers=[*headers, length]))
        if body:
            await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

    async def begin_events(self) -> None:
        await self._send(h11.Response(status_code=200, headers=_EVENTS))

    async def event(self, text: bytes) -> None:
        await self._send(h11.Data(data=text))

    async def end_events(self) -> None:
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()


async def _result(request: _ToolsRequest) -> bytes:
    match request.method:
        case "initialize":
            asked = request.params.get("protocolVersion")
            return request.answer(
                {
                    "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "antiphon", "version": VERSION},
                    "instructions": INSTRUCTIONS,
                }
            )
        case "ping":
            return request.answer({})
        case "tools/list":
            schemas = await request.run.schemas()
            shown: list[JsonValue] = [
                {"name": each.name, "description": each.description, "inputSchema": {**each.parameters}}
                for each in schemas
            ]
            return request.answer({"tools": shown})
        case method:
            return request.error(-32601, f"Method not found: {method[:80]!r}")


async def _call(connection: _ToolsConnection, request: _ToolsRequest) -> None:
    """Answers with events, of which the first are signs of life."""
    name, arguments = request.params.get("name"), request.params.get("arguments") or {}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        await connection.send(200, request.error(-32602, "A call needs a name and arguments."), _EVENTS[:0])
        return
    await connection.begin_events()
    found: list[JsonObject] = []
    done = anyio.Event()

    async def call() -> None:
        try:
            found.append(await request.run.call(name, arguments))
        except AntiphonError as error:
            found.append({"status": "error", "code": error.code, "error": error.message})
        done.set()

    async with background_tasks() as tasks:
        tasks.start_soon(call)
        while not done.is_set():
            with anyio.move_on_after(PING_SECONDS):
                await done.wait()
            if not done.is_set():
                await connection.event(b": waiting\n\n")
    answer = found[0]
    result: JsonObject = {
        "content": [{"type": "text", "text": json.dumps(answer, ensure_ascii=False, separators=(",", ":"))}],
        "structuredContent": answer,
        "isError": answer.get("status") in FAILURES,
    }
    with suppress(OSError):
        await connection.event(b"event: message\ndata: " + request.answer(result) + b"\n\n")
        await connection.end_events()


def _line(message: JsonObject) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()
