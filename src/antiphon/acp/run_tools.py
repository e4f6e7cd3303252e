"""Offers a run's tools to its harness: MCP over HTTP at `/mcp`, on loopback. The token is the run's, and gone with it.

A call of the harness is a call of its run, with the rights, approvals and records of any. Contract: foreign_agents 2.
Our own server of MCP is the gateway's, and not every process has one; this one opens its port with the first run.
"""

import json
import logging
import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from antiphon.acp.background import background_tasks
from antiphon.acp.loopback_http import LoopbackHttp, StatusAlone, serve_loopback
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
PING_SECONDS: Final = 15.0
"""Between signs of life while a call waits, so that no client gives it up."""
VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The versions of MCP whose requests are answered, newest first."""
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

    async def run(self) -> None:
        """Serves until cancelled; opens nothing before a run is offered."""
        async with anyio.create_task_group() as self._tasks:
            self._started.set()
            await anyio.sleep_forever()

    async def offer(self, run: RunOfHarness, port: int | None = None) -> Offer:
        """Offers the run's tools from now on, until `withdraw`; at that port if one listens there for the harness."""
        await self._started.wait()
        async with self._opening:
            if port is None and self._port is None:
                listener = socket.create_server((HOST, 0))
                self._port = int(listener.getsockname()[1])
                await self.listen(listener)
        token = secrets.token_urlsafe(32)
        self._runs[token] = run
        return Offer(url=f"http://{HOST}:{port or self._port}{PATH.decode()}", token=token)

    def withdraw(self, offer: Offer) -> None:
        self._runs.pop(offer.token, None)

    async def listen(self, listener: socket.socket) -> None:
        """Answers on the socket from now on; it may be in the network of a sandbox."""
        assert self._tasks is not None
        await self._tasks.start(serve_loopback, listener, self._answer)

    async def _answer(self, connection: "LoopbackHttp") -> None:
        try:
            request = await self._read(connection)
            if request.message.get("id") is None:
                raise StatusAlone(202)
            if request.method == "tools/call":
                await _call(connection, request)
            else:
                await connection.send(200, await _result(request), [(b"content-type", b"application/json")])
        except StatusAlone as refused:
            await connection.send(refused.status)

    async def _read(self, connection: "LoopbackHttp") -> _ToolsRequest:
        head, body = await connection.read(MAX_BODY_BYTES)
        headers = dict(head.headers)
        kind, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        found = next(
            (run for known, run in self._runs.items() if secrets.compare_digest(known.encode(), token.encode())), None
        )
        if kind.lower() != "bearer" or found is None or b"origin" in headers:  # no browser asks here
            raise StatusAlone(401)
        if head.target.partition(b"?")[0] != PATH:
            raise StatusAlone(404)
        if head.method != b"POST":
            raise StatusAlone(405)
        try:
            check_values(body)
            message: JsonValue = json.loads(body)
        except (ValueError, RecursionError, AntiphonError):
            raise StatusAlone(400) from None
        if not isinstance(message, dict):
            raise StatusAlone(400)
        return _ToolsRequest(found, message)


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


async def _call(connection: LoopbackHttp, request: _ToolsRequest) -> None:
    """Answers with events, of which the first are signs of life."""
    name, arguments = request.params.get("name"), request.params.get("arguments") or {}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        await connection.send(200, request.error(-32602, "A call needs a name and arguments."), _EVENTS[:0])
        return
    await connection.begin_answer(200, _EVENTS)
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
                await connection.piece(b": waiting\n\n")
    answer = found[0]
    result: JsonObject = {
        "content": [{"type": "text", "text": json.dumps(answer, ensure_ascii=False, separators=(",", ":"))}],
        "structuredContent": answer,
        "isError": answer.get("status") in FAILURES,
    }
    with suppress(OSError):
        await connection.piece(b"event: message\ndata: " + request.answer(result) + b"\n\n")
        await connection.end_answer()


def _line(message: JsonObject) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()
