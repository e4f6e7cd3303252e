"""A gateway on a home, in this process: `serve` runs it, and other commands while they need one."""

import os
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from anyio.from_thread import start_blocking_portal
from msgspec import Struct

from antiphon.app import gateway_app, open_app
from antiphon.building import App
from antiphon.cli.connection.gateway_file import RunningGateway, find_gateway, place_of, published
from antiphon.cli.connection.link_page import PAGE_NAME
from antiphon.cli.exits import ending_at_once, sole
from antiphon.config.config import Config
from antiphon.config.sections.gateway import ProcessRole
from antiphon.domain.errors import Conflict
from antiphon.gateway.connections import ConnectionLimits
from antiphon.gateway.server import bind, room_for_connections, serving
from antiphon.private_files import restrict_umask


class LocalGateway(Struct, frozen=True, kw_only=True):
    app: App
    url: str
    token: str
    """Lets in as the owner, in this process alone."""


@asynccontextmanager
async def run_gateway(
    home: Path, config: Config, listener: socket.socket, *, is_temporary: bool = False
) -> AsyncGenerator[LocalGateway]:
    """A gateway that answers on the socket; leaving drains it. Raises what `open_app` does, and `TooFewDescriptors`."""
    try:
        room_for_connections()  # said before anything is opened
        async with open_app(home, config) as app:
            token = await app.services.ownership.prepare(is_embedded=config.database.url is None)
            own = f"own_{app.services.ids.random_hex(48)}"
            limits = ConnectionLimits(connections=config.gateway.max_connections)
            gateway_application = gateway_app(app, token or "", own)
            serve = serving(gateway_application, listener, on_stop=app.services.let_go, limits=limits)
            async with serve as url:
                gateway = RunningGateway(
                    url=url,
                    pid=os.getpid(),
                    is_temporary=is_temporary,
                    config_file=place_of(config.origins),
                    config_digest=config.origins.digest,
                )
                with published(home, gateway) as is_published:
                    if not is_published and not is_temporary:
                        raise home_in_use(home, find_gateway(home))
                    try:
                        yield LocalGateway(app=app, url=url, token=own)
                    finally:
                        (home / PAGE_NAME).unlink(missing_ok=True)
                        await app.drain.run()  # while who waits for a run still gets its answer
    finally:
        listener.close()


def home_in_use(home: Path, running: RunningGateway | None) -> Conflict:
    """The error for a second gateway on the home."""
    where = f" by the gateway at {running.url} (process {running.pid})" if running is not None else ""
    return Conflict(
        f"Home is in use{where}: {str(home)!r}. Stop it first, or choose another home with --home.", code="home_in_use"
    )


@contextmanager
def gateway_in_thread(home: Path, config: Config) -> Generator[LocalGateway]:
    """A gateway of our own on a free local port, in a thread; it runs agents unless its role says gateway alone."""
    if config.gateway.role is ProcessRole.WORKER:
        config = config.model_copy(update={"gateway": config.gateway.model_copy(update={"role": ProcessRole.ALL})})
    restrict_umask()
    with ExitStack() as stack:
        with ending_at_once():
            portal = stack.enter_context(start_blocking_portal(backend_options={"use_uvloop": True}))
            listener = bind("127.0.0.1", 0)
            running = portal.wrap_async_context_manager(run_gateway(home, config, listener, is_temporary=True))
            try:
                gateway = stack.enter_context(running)
            except ExceptionGroup as group:
                raise sole(group) from group
        try:
            yield gateway
        finally:
            # What the command raises is none of the gateway's business: it drains, until interrupted once more.
            with ending_at_once():
                stack.close()
