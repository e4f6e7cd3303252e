"""The connection to one MCP server: opened when first needed, kept, and opened again after it breaks."""

import logging
import math
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO, TypeAlias, TypeVar, cast

import anyio
from anyio import to_thread
from pydantic import ValidationError

from antiphon.certificates import known_certificates
from antiphon.clock import Clock
from antiphon.domain.errors import Unavailable
from antiphon.domain.message import JsonObject
from antiphon.incoming import bounded, problems_of
from antiphon.mcp.bounded import ENCODING, MAX_MESSAGE_BYTES, bound_response, register
from antiphon.mcp.labels import with_features
from antiphon.mcp.lenient import lenient
from antiphon.mcp.settings import ServerSettings
from antiphon.mcp.statuses import SESSION_LOST, tell_status
from antiphon.proxies import uses_environment

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import Transport, TransportStreams
    from mcp.client.session import IncomingMessage
    from mcp.types import CallToolResult, Tool

logger = logging.getLogger(__name__)

T = TypeVar("T")
ToolList: TypeAlias = "list[Tool]"

GONE = "the connection to it was lost"
LONGEST_DELAY_SECONDS = 300.0
LISTING_LIFE_SECONDS = 300.0
"""How long a server's list of tools is used before it is read again."""
MAX_PAGES = 50
CONNECT_SECONDS = 30.0


class ServerTimeout(Unavailable):
    """The server did not answer before its deadline."""

    default_code = "mcp_timeout"


class ServerUnavailable(Unavailable):
    """The server cannot be reached, or the connection to it broke."""

    default_code = "mcp_unavailable"


class _SessionLost(Exception):
    """The server has forgotten the session, and so has not carried out what was asked."""


class CallFailed(Unavailable):
    """The server refused the call, or its answer is not a valid result."""

    default_code = "mcp_tool_failed"


@dataclass(frozen=True, slots=True)
class _Open:
    client: "Client"
    since: float
    lost: anyio.Event = field(default_factory=anyio.Event)
    """Set by the task that notices that the connection is unusable."""


@dataclass(slots=True)
class _Attempt:
    is_settled: anyio.Event = field(default_factory=anyio.Event)
    """Set once the connection is open or has failed."""
    opened: _Open | None = None


class ServerConnection:
    """One server. While `run` runs, any task may use the connection.

    After a failure the next use connects again; after several failures, only once a delay is over, which doubles.
    """

    def __init__(self, settings: ServerSettings, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self._open: _Open | None = None
        self._wanted = anyio.Event()
        self._attempt: _Attempt | None = None
        self._problem = ""
        self._failures = 0
        self._not_before = -math.inf
        self._tools: ToolList = []
        self._listed_at: float | None = None
        self._listing = anyio.Lock()
        self._changes = 0
        """How often the server said that its tools have changed."""

    async def run(self) -> None:
        """Connects whenever a task needs the connection, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            attempt, problem = self._attempt, GONE
            assert attempt is not None
            try:
                await self._hold(attempt)
            except Exception as error:  # any error of the server, its program or the SDK's tasks
                problem = self._describe(error)
            if attempt.opened is not None:
                self._lose(attempt.opened, problem)
            else:
                self._attempt = None
                self._note_failure(problem)
                attempt.is_settled.set()

    async def tools(self) -> ToolList:
        """The server's tools, as last listed. Raises `ServerTimeout`, `ServerUnavailable` and `CallFailed`."""
        return await self._ask("list its tools", self._list_tools)

    async def call(self, tool: str, arguments: JsonObject) -> "CallToolResult":
        """The result of a call. Raises `ServerTimeout`, `ServerUnavailable` and `CallFailed`."""

        async def call(client: "Client") -> "CallToolResult":
            return await client.call_tool(tool, arguments)

        result = await self._ask(f"answer the call of {tool!r}", call)
        self._failures = 0
        return result

    async def _list_tools(self, client: "Client") -> ToolList:
        async with self._listing:
            now = self._clock.monotonic()
            if self._listed_at is not None and now - self._listed_at < LISTING_LIFE_SECONDS:
                return self._tools
            found: ToolList = []
            cursor, changes = None, self._changes
            for _ in range(MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                found += page.tools
                cursor = page.next_cursor
                if not cursor:
                    break
            self._tools, self._listed_at = found, now if changes == self._changes else None
            return found

    async def _ask(self, what: str, question: "Callable[[Client], Awaitable[T]]") -> T:
        seconds = self.settings.timeout.total_seconds()
        opened = None
        try:
            with anyio.fail_after(seconds):
                opened = await self._opened()
                try:
                    return await self._put(opened, question)
                except _SessionLost:
                    self._forget(opened)
                    opened = await self._opened()
                    return await self._put(opened, question)
        except _SessionLost as error:
            raise CallFailed(
                f"MCP server forgets its sessions at once: {self.settings.name!r}. It did not {what}."
            ) from error
        except TimeoutError as error:
            if opened is None:
                self._problem = self._problem or self._describe(error)
                raise self._unavailable() from error
            raise ServerTimeout(
                f"MCP server did not {what} within {seconds:g} s: {self.settings.name!r}. The call may still "
                "take effect. The owner can raise timeout_seconds."
            ) from error

    async def _put(self, opened: _Open, question: "Callable[[Client], Awaitable[T]]") -> T:
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        try:
            return await question(opened.client)
        except MCPError as error:
            if error.message == SESSION_LOST:
                raise _SessionLost from error
            if error.code == CONNECTION_CLOSED or error.message == "Session terminated":
                self._lose(opened, GONE)
                raise ServerUnavailable(
                    f"MCP server went away: {self.settings.name!r}. The call may have taken effect. "
                    "The next call starts the server again."
                ) from error
            raise CallFailed(f"MCP server refused: {self._masked(error.message)}") from error
        except (ValueError, RuntimeError) as error:  # from the SDK, for a result that breaks its own schema
            said = (
                bounded(f"{place}: {problem}" for place, problem in problems_of(error))
                if isinstance(error, ValidationError)
                else str(error)
            )
            raise CallFailed(f"MCP server gave an invalid result: {self._masked(said)}") from error

    async def _opened(self) -> _Open:
        """The open connection, or the one that is being opened. Raises `ServerUnavailable`."""
        if self._open is not None:
            return self._open
        if self._attempt is None:
            wait = self._not_before - self._clock.monotonic()
            if wait > 0:
                raise self._unavailable(f" Antiphon tries again in {math.ceil(wait)} s.")
            self._attempt = _Attempt()
            self._wanted.set()
        attempt = self._attempt
        await attempt.is_settled.wait()
        if attempt.opened is None:
            raise self._unavailable()
        return attempt.opened

    def _unavailable(self, advice: str = "") -> ServerUnavailable:
        return ServerUnavailable(f"MCP server cannot be used now: {self.settings.name!r}, {self._problem}.{advice}")

    async def _hold(self, attempt: _Attempt) -> None:
        """Opens the connection and keeps it until it is lost. Raises errors of the attempt or the server's end."""
        client_class = await to_thread.run_sync(_load_client)
        seconds = self.settings.timeout.total_seconds()
        with anyio.CancelScope(deadline=anyio.current_time() + seconds) as scope:
            client = client_class(_transport(self.settings), cache=None, message_handler=self._on_message)
            async with client:
                scope.deadline = math.inf
                self._attempt = None
                self._open = attempt.opened = _Open(client, self._clock.monotonic())
                attempt.is_settled.set()
                await self._open.lost.wait()
        if scope.cancelled_caught:
            raise TimeoutError

    async def _on_message(self, message: "IncomingMessage") -> None:
        from mcp.types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._listed_at = None
            self._changes += 1

    def _forget(self, opened: _Open) -> None:
        """Closes a connection whose session is lost; the next use connects at once."""
        if self._open is opened:
            self._open = self._listed_at = None
            opened.lost.set()

    def _lose(self, opened: _Open, problem: str) -> None:
        """Closes the connection; the first task to notice sets the problem."""
        if self._open is opened:
            self._open = None
            if self._clock.monotonic() - opened.since > LONGEST_DELAY_SECONDS:
                self._failures = 0
            self._note_failure(problem)
            opened.lost.set()

    def _note_failure(self, problem: str) -> None:
        delay = min(2 ** (self._failures - 1), LONGEST_DELAY_SECONDS) if self._failures else 0
        self._failures = min(self._failures + 1, 20)
        self._not_before = self._clock.monotonic() + delay
        self._problem = problem
        self._listed_at = None
        logger.warning(
            "MCP server is not available",
            extra={
                "action": "mcp_unavailable",
                "server": self.settings.name,
                "agent_id": self.settings.agent_id,
                "problem": problem,
                "seconds": delay,
            },
        )

    def _describe(self, error: BaseException) -> str:
        match _sole(error):
            case TimeoutError():
                return f"it did not start within {self.settings.timeout.total_seconds():g} s"
            case FileNotFoundError():
                return f"program {self.settings.command!r} or directory {str(self.settings.cwd)!r} does not exist"
            case OSError() as refused:
                return f"its program cannot be started ({refused.strerror})"
            case other:
                return f"it does not answer ({self._masked(f'{type(other).__name__}: {other}')})"

    def _masked(self, text: str) -> str:
        return self.settings.masked(text)[:500]


def _sole(error: BaseException) -> BaseException:
    """The first error inside nested task groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _load_client() -> "type[Client]":
    """Takes a second and 25 MB the first time."""
    from mcp import Client

    for name in ("mcp", "httpx2", "httpcore2"):
        # They log the messages.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return Client


def _transport(settings: ServerSettings) -> "Transport":
    return _program(settings) if settings.url is None else _address(settings.url, settings)


@asynccontextmanager
async def _program(settings: ServerSettings) -> AsyncGenerator["TransportStreams"]:
    from mcp import StdioServerParameters, stdio_client

    assert settings.command is not None
    parameters = StdioServerParameters(
        command=settings.command,
        args=list(settings.args),
        env=dict(settings.env),
        cwd=settings.cwd,
        encoding=ENCODING,
    )
    register()
    with _open_log(settings) as log:
        async with stdio_client(parameters, errlog=log) as streams:
            yield lenient(streams)


@asynccontextmanager
async def _address(url: str, settings: ServerSettings) -> AsyncGenerator["TransportStreams"]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    timeout = httpx2.Timeout(CONNECT_SECONDS, read=settings.timeout.total_seconds() + CONNECT_SECONDS)
    async with (
        httpx2.AsyncClient(
            headers={"accept-encoding": "identity", **with_features(settings.headers)},
            timeout=timeout,
            verify=known_certificates(),
            trust_env=uses_environment(url),
            event_hooks={"response": [tell_status, bound_response]},
        ) as http,
        streamable_http_client(url, http_client=http, max_sse_event_size=2 * MAX_MESSAGE_BYTES) as streams,
    ):
        yield lenient(streams)


def _open_log(settings: ServerSettings) -> TextIO:
    if settings.log is None:
        return open(os.devnull, "w")  # noqa: PTH123
    settings.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return open(os.open(settings.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w")  # noqa: PTH123
