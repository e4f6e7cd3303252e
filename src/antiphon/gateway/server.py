"""The HTTP server: uvicorn on a socket that was bound before startup reported success."""

import asyncio
import errno
import resource
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, MutableMapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, cast

import anyio
import anyio.lowlevel
import uvicorn
from msgspec.structs import replace

from antiphon.clock import RandomIds, SystemClock
from antiphon.domain.errors import AntiphonError
from antiphon.gateway.asgi import AsgiApp, Receive, Scope, Send
from antiphon.gateway.connections import ConnectionLimits, Connections, HttpConnection
from antiphon.gateway.request_headers import WithRequestIds
from antiphon.gateway.responses import error_response
from antiphon.gateway.socket_connection import SocketConnection

GRACE_SECONDS = 5
QUICK_SECONDS = 3.0
"""Within this time a request that waits for nothing is answered."""

MOST_DESCRIPTORS = 65_536
"""The limit of open files that the process asks for; if fewer are allowed, it takes all of them."""
KEPT_DESCRIPTORS = 192
"""How many of them are reserved for other things than connections."""
LEAST_CONNECTIONS = 8
"""With room for fewer, a gateway would refuse nearly everybody, and does not start."""


class PortTaken(AntiphonError):
    """The address is already in use or cannot be bound."""

    default_code = "port_taken"


class TooFewDescriptors(AntiphonError):
    """The limit of open files leaves no room for connections."""

    default_code = "too_few_descriptors"


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `PortTaken` with the remedy."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit it: asyncio sets it only if the protocol is named, and a body would wait 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"Port is taken: {host}:{port}. Another gateway or program listens there; "
                "stop it, or choose another with --port (0 takes any free one)."
            ) from error
        raise PortTaken(f"Address cannot be listened on: {host}:{port} ({error.strerror})") from error
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"


_AGAIN = {"retry-after": "1", "connection": "close"}
_REFUSED = error_response(503, "draining", "Gateway is stopping. Nothing was done; try again in a moment.", _AGAIN)
_CUT = error_response(
    503,
    "stopped",
    "Gateway is stopping. The request may have been carried out; send it again with the same id or key.",
    _AGAIN,
)


class _Requests:
    """Wraps the application so that its requests can be ended; an interrupted request gets an answer that says so.

    Puts `antiphon.cancel` into each scope, which ends the request. Then `antiphon.last` answers it, an application that
    was put into the scope before. A WebSocket puts `antiphon.drain` into its scope, which ends it after its answers.
    """

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._open: dict[anyio.CancelScope, Scope] = {}
        self._is_empty = anyio.Event()
        self._is_ending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._is_ending:
            await _REFUSED(scope, receive, send)
            return
        if (task := asyncio.current_task()) is not None and scope["type"] == "http":
            task.set_name(f"{scope['method']} {scope['path'][:100]}")  # the watchdog reports what blocks the loop
        has_begun = False

        def begin(message: MutableMapping[str, Any]) -> Awaitable[None]:
            nonlocal has_begun
            has_begun = True
            return send(message)

        request = anyio.CancelScope()
        scope["antiphon.cancel"] = request.cancel
        self._open[request] = scope
        try:
            with request:
                await self._app(scope, receive, begin)
            if not request.cancelled_caught:
                return
            if has_begun:
                scope["antiphon.abort"]()  # the client must not take a partial answer for the whole
                await anyio.lowlevel.checkpoint()
            else:
                await scope.get("antiphon.last", _CUT)(scope, receive, send)
        finally:
            del self._open[request]
            if not self._open:
                self._is_empty.set()

    async def end(self) -> None:
        """Accepts no more requests, lets quick ones finish, and ends the others."""
        self._is_ending = True
        for scope in tuple(self._open.values()):
            if "antiphon.drain" in scope:
                scope["antiphon.drain"]()
        if self._open:
            self._is_empty = anyio.Event()
            with anyio.move_on_after(QUICK_SECONDS):
                await self._is_empty.wait()
        for request in tuple(self._open):
            request.cancel()


class _GatewayServer(uvicorn.Server):
    """Leaves signals to the program, and ends open requests before it waits for connections to close."""

    def __init__(self, config: uvicorn.Config, requests: _Requests, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._requests = requests
        self._on_stop = on_stop
        self.has_started = anyio.Event()
        self._is_to_stop = anyio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._is_to_stop.set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.has_started.set()

    async def main_loop(self) -> None:
        """Updates the `Date` header each second; uvicorn's own loop wakes an idle process ten times as often."""
        while not await self.on_tick(0):
            with anyio.move_on_after(1):
                await self._is_to_stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()
        await self._requests.end()
        await super().shutdown(sockets)


def room_for_connections() -> int:
    """How many connections there is room for, once the limit of open files is raised as far as allowed.

    Raises `TooFewDescriptors` with the limit and the remedy.
    """
    descriptors = _raise_descriptors()
    if descriptors < KEPT_DESCRIPTORS + LEAST_CONNECTIONS:
        raise TooFewDescriptors(
            f"Limit of open files is {descriptors}; a gateway needs {KEPT_DESCRIPTORS + LEAST_CONNECTIONS} at least. "
            "Raise the hard limit: `ulimit -Hn` in the shell that starts it, LimitNOFILE in systemd, `--ulimit nofile` "
            "of a container."
        )
    return descriptors - KEPT_DESCRIPTORS


def _raise_descriptors() -> int:
    """Raises the limit of open files as far as allowed and useful; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return wanted if soft == resource.RLIM_INFINITY else soft


@asynccontextmanager
async def serving(
    app: AsgiApp, listener: socket.socket, *, on_stop: Callable[[], None], limits: ConnectionLimits | None = None
) -> AsyncGenerator[str]:
    """Answers requests on the socket; yields the address. Leaving stops it and closes connections."""
    limits = limits or ConnectionLimits()
    limits = replace(limits, connections=min(limits.connections, room_for_connections()))
    requests, connections = _Requests(app), Connections(limits)
    config = uvicorn.Config(
        WithRequestIds(requests, RandomIds(SystemClock())),
        http=cast("type[asyncio.Protocol]", partial(HttpConnection, connections)),
        log_config=None,
        access_log=False,
        lifespan="off",
        ws=cast("type[asyncio.Protocol]", partial(SocketConnection, connections)),
        ws_max_size=limits.first_frame_bytes,
        ws_ping_interval=limits.ping_seconds,
        ws_ping_timeout=limits.ping_seconds,
        ws_per_message_deflate=False,
        server_header=False,
        date_header=True,
        timeout_keep_alive=int(limits.idle_seconds),
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = _GatewayServer(config, requests, on_stop)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, [listener])
        await server.has_started.wait()
        try:
            yield url_of(listener)
        finally:
            server.stop()
