"""The compartments of a home that no gateway has open.

A gateway refuses to start while its settings name a compartment that does not exist, so creating one must not need it.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio

from antiphon.backends import Backend, describe_process, open_postgres, open_sqlite
from antiphon.cli.exits import sole
from antiphon.clock import RandomIds, SystemClock
from antiphon.config.config import Config
from antiphon.domain.classification import Compartments
from antiphon.domain.ids import ProcessId, SessionRow
from antiphon.engine.access.compartments import HomeCompartments
from antiphon.home import prepare_home
from antiphon.version import VERSION


def use_compartments(
    home: Path, config: Config, use: Callable[[HomeCompartments], Awaitable[Compartments]]
) -> Compartments:
    """Calls `use` with the home's compartments and starts nothing else; returns its answer.

    Raises `StoreUnusable`, also for a home that another process has open.
    """

    async def run() -> Compartments:
        clock = SystemClock()
        async with _open_backend(home, config, clock) as backend:
            return await use(HomeCompartments(backend.database))

    prepare_home(home, is_embedded=config.database.url is None)
    try:
        return anyio.run(run)
    except ExceptionGroup as group:
        raise sole(group) from group


def _open_backend(home: Path, config: Config, clock: SystemClock) -> AbstractAsyncContextManager[Backend]:
    url = config.database.address()
    if url is None:
        return open_sqlite(home, clock=clock, check=_ignore)
    id = ProcessId(RandomIds(clock).new("proc"))
    process = describe_process(id, "command", version=VERSION, fingerprint=config.fingerprint(), agents=())
    return open_postgres(url, clock=clock, check=_ignore, process=process, connections=1)


def _ignore(session: SessionRow) -> None:
    """No run works in this process."""
