"""The foundation of a system: a database with its notifier and its dispatch, embedded or shared."""

import os
import socket
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from anyio import to_thread
from msgspec import Struct

from antiphon.clock import Clock
from antiphon.domain.delay import Delta
from antiphon.domain.errors import Invalid, Unavailable
from antiphon.domain.ids import AgentId, Ids, ProcessId, SessionRow
from antiphon.engine.runs.context import PublishDelta
from antiphon.engine.work.dispatch import Dispatch, LocalDispatch
from antiphon.engine.work.processes import Processes
from antiphon.feed.local import LocalNotifier
from antiphon.feed.notifier import Notifier
from antiphon.store.database import CommitHook, Database
from antiphon.store.home_lock import describe_holder
from antiphon.store.inspection import Inspection, inspect_file
from antiphon.store.migrations import newest_schema
from antiphon.store.moments import Moments
from antiphon.store.processes import Process
from antiphon.store.sqlite import Connect, SqliteDatabase, connect_sqlite

if TYPE_CHECKING:
    from antiphon.store.postgres.access import ServerAccess as ServerAccess
    from antiphon.store.postgres.schema import ServerState
    from antiphon.store.transfer import Report

DATABASE_NAME = "antiphon.db"
MOVED_SUFFIX = ".moved"
"""The suffix of an embedded database after its move to a shared one."""

Check = Callable[[SessionRow], None]
"""Checks whether the session's run has to stop, if this process executes it."""


class DeltaRelay(Protocol):
    """Exchanges deltas with the other processes; any may be lost."""

    def show_deltas(self, show: PublishDelta) -> None: ...

    def publish_delta(self, session: SessionRow, delta: Delta) -> None: ...


class Backend(Struct, frozen=True, kw_only=True):
    database: Database
    notifier: Notifier
    dispatch: Dispatch
    processes: Processes | None
    """None if there can be no other process."""
    deltas: DeltaRelay | None = None
    """Exchanges deltas with the other processes; None if there are none."""
    tasks: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = ()
    """Must run while the backend is used."""


@asynccontextmanager
async def open_sqlite(
    home: Path,
    *,
    clock: Clock,
    moments: Moments | None = None,
    check: Check,
    connect: Connect = connect_sqlite,
    commit_hook: CommitHook | None = None,
    synchronous: str = "FULL",
) -> AsyncGenerator[Backend]:
    """The embedded backend: one file in the home, one process. Raises `StoreUnusable`."""
    notifier, dispatch = LocalNotifier(), LocalDispatch()

    def on_commit(
        woken: Collection[SessionRow], dispatched: Collection[SessionRow], interrupted: Collection[SessionRow]
    ) -> None:
        notifier.publish(woken)
        dispatch.dispatch(dispatched)
        for session in interrupted:
            check(session)

    database = await SqliteDatabase.open(
        home / DATABASE_NAME,
        on_commit=on_commit,
        moments=moments or Moments(clock),
        connect=connect,
        commit_hook=commit_hook,
        synchronous=synchronous,
    )
    dispatch.read_from(database)
    try:
        yield Backend(database=database, notifier=notifier, dispatch=dispatch, processes=None)
    finally:
        with anyio.CancelScope(shield=True):
            await database.close()


@asynccontextmanager
async def open_postgres(
    url: str,
    *,
    clock: Clock,
    ids: Ids | None = None,
    check: Check,
    process: Process,
    connections: int,
    commit_hook: CommitHook | None = None,
) -> AsyncGenerator[Backend]:
    """The shared backend: a PostgreSQL database and any number of processes. Raises `StoreUnusable`."""
    with _postgres_packages():
        from antiphon.engine.work.procrastinate_dispatch import ProcrastinateDispatch, deferred
        from antiphon.feed.postgres import PostgresNotifier
        from antiphon.store.postgres.channel import PostgresChannel
        from antiphon.store.postgres.database import PostgresDatabase
        from antiphon.store.postgres.schema import prepare
    await prepare(url, clock.now_ms())
    channel = PostgresChannel(url)
    notifier = PostgresNotifier(channel, process.id, on_interrupt=check)
    dispatch = ProcrastinateDispatch(url)

    def on_commit(
        woken: Collection[SessionRow], dispatched: Collection[SessionRow], interrupted: Collection[SessionRow]
    ) -> None:
        notifier.publish(woken, interrupted)

    async with PostgresDatabase.open(
        url,
        on_commit=on_commit,
        defer=deferred,
        moments=Moments(clock, ids, process=process.id),
        commit_hook=commit_hook,
        connections=connections,
    ) as database:
        dispatch.read_from(database)
        processes = Processes(database, clock, process, end_transactions=database.end_transactions)

        async def notify() -> None:
            await notifier.run(database)

        try:
            await processes.register()
            yield Backend(
                database=database,
                notifier=notifier,
                deltas=notifier,
                dispatch=dispatch,
                processes=processes,
                tasks=(notify, processes.run),
            )
            # If this fails, the other processes notice that the signs of life end.
            with suppress(Unavailable):
                await processes.unregister()
        finally:
            with anyio.CancelScope(shield=True):
                await channel.close()


def name_holder(home: Path, clock: Clock) -> None:
    """Lets commands that meet the home's lock know that a program of its user has the home open."""
    describe_holder(home / DATABASE_NAME, clock.now())


def describe_process(
    id: ProcessId, role: str, *, version: str, fingerprint: str, agents: tuple[AgentId, ...]
) -> Process:
    """This process, as others see it."""
    return Process(
        id=id,
        role=role,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=version,
        fingerprint=fingerprint,
        agents=agents,
    )


def describe_database(home: Path, url: str | None) -> str:
    """The place of the data, for people: without user and password."""
    if url is None:
        return str(home / DATABASE_NAME)
    with _postgres_packages():
        from antiphon.store.postgres.schema import place
    return f"PostgreSQL {place(url)}"


async def update_database(home: Path, url: str | None, clock: Clock) -> int:
    """Updates the schema to this version and returns its number. Raises `StoreUnusable` and `Invalid`."""
    if url is None:
        async with open_sqlite(home, clock=clock, check=lambda session: None):
            return newest_schema()
    with _postgres_packages():
        from antiphon.store.postgres.schema import prepare
    return await prepare(url, clock.now_ms())


async def look_at_server(url: str) -> "ServerState":
    """The state of a PostgreSQL database and its processes; changes nothing. Raises `StoreUnusable`, `Invalid`."""
    with _postgres_packages():
        from antiphon.store.postgres.schema import look
    return await look(url)


async def inspect_database(home: Path, url: str | None) -> Inspection:
    """Reads every row of the database; changes nothing. Raises `StoreUnusable`, `Invalid`."""
    if url is None:
        return await to_thread.run_sync(inspect_file, home / DATABASE_NAME)
    with _postgres_packages():
        from antiphon.store.postgres.inspection import inspect_server
    return await inspect_server(url)


async def move_database(home: Path, url: str, clock: Clock, report: "Report") -> dict[str, int]:
    """Moves the home's embedded database to PostgreSQL; returns the number of rows by table.

    Raises `StoreUnusable`, `Conflict`, `Invalid`.
    """
    with _postgres_packages():
        from antiphon.store.transfer import transfer
    path = home / DATABASE_NAME
    return await transfer(path, path.with_name(path.name + MOVED_SUFFIX), url, now_ms=clock.now_ms(), report=report)


@contextmanager
def _postgres_packages() -> Generator[None]:
    try:
        yield
    except ImportError as error:
        raise Invalid(
            f"PostgreSQL needs packages that are not installed ({error.name}). Install antiphon[postgres].",
            code="missing_extra",
        ) from error
