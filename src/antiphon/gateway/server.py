"""The HTTP server: uvicorn on a socket that was bound before anything was promised."""

import errno
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import cast

import anyio
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from antiphon.domain.errors import AntiphonError
from antiphon.gateway.guard import AsgiApp

GRACE_SECONDS = 5


class PortTaken(AntiphonError):
    """The address cannot be listened on."""

    default_code = "port_taken"


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `PortTaken` with the remedy."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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


class _Protocol(HttpToolsProtocol):
    """Puts `antiphon.abort` into each scope: it drops the connection with what waits to be sent."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast("dict[str, object]", self.scope)["antiphon.abort"] = self.transport.abort


class _Server(uvicorn.Server):
    """Leaves signals to the program, and ends open streams before it waits for connections to close."""

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_stop = on_stop
        self.has_started = anyio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.has_started.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()
        await super().shutdown(sockets)


@asynccontextmanager
async def serving(app: AsgiApp, listener: socket.socket, *, on_stop: Callable[[], None]) -> AsyncGenerator[str]:
    """Answers requests on the socket; gives the address. Leaving stops it and closes connections."""
    config = uvicorn.Config(
        app,
        http=_Protocol,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        date_header=True,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = _Server(config, on_stop)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, [listener])
        await server.has_started.wait()
        try:
            yield url_of(listener)
        finally:
            server.should_exit = True
