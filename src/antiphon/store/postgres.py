"""The scale-out database: PostgreSQL, shared by any number of processes.

A *lane* is a few tasks with a connection each. Units that name the same session wait in one line and share
transactions, so that a hot session costs one lock and one COMMIT for many messages.
"""

import asyncio
import logging
import random
import re
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Any, TypeVar, TypeVarTuple

import anyio
import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.types.numeric import Int8Dumper

from antiphon.domain.actor import Principal
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import SessionRow
from antiphon.store.database import CommitHook, Named, OnCommit, Query, Row, SqlValue, Transaction
from antiphon.store.effects import Effects

logger = logging.getLogger(__name__)

R = TypeVar("R")
Ts = TypeVarTuple("Ts")
Defer = Callable[[AsyncConnection[Any], SessionRow, Principal], Awaitable[None]]
"""Stores the message "this session has work" in the transaction that is open on the connection."""

MAX_BATCH = 64
"""Units of one session in one transaction at the most."""
MAX_RERUNS = 5
"""Of a transaction that lost against another one."""
WAIT_SECONDS = 10.0
"""How long a unit waits for a server that cannot be reached."""
RETRY_SECONDS = 0.1
_LOCK = "FOR NO KEY UPDATE"
"""Of a session's row: no other unit may write to the session, but rows that name it may be written elsewhere."""
SEVERAL_SESSIONS_LOCK = 7465
"""Held by one unit at a time of those that know of several sessions; another than that of migrations."""
MAX_KNOWN_KEYS = 65_536
IDLE_SECONDS = 5
"""How long a process that was suspended within a transaction keeps what it locked."""
_LOST = ("08", "57P", "53300", "25006", "25P03")
"""Beginnings of the states that tell of a server which went away, starts, is full of clients, changes places, or gave
up on us."""


class OutcomeUnknown(Exception):
    """The connection broke while COMMIT was under way."""


class _NeedsSnapshot(Exception):
    """The query reads with more than one statement, which must see one state."""


@lru_cache(maxsize=2048)
def _numbered(statement: str) -> bytes:
    """The statement with `$1, $2 …` for its question marks, as PostgreSQL has them."""
    parts = statement.split("?")
    return "".join(
        part if index == len(parts) - 1 else f"{part}${index + 1}" for index, part in enumerate(parts)
    ).encode()


@lru_cache(maxsize=2048)
def _prepare(statement: str) -> bool | None:
    """False where the plan depends on the values: rare words are looked up, common ones met on the way."""
    return False if "message_words(" in statement else None


class _PostgresQuery:
    """Reads; the first statement alone needs no transaction."""

    __slots__ = ("_cursor", "_is_alone", "_is_used")

    def __init__(self, cursor: AsyncRawCursor[Row], *, is_alone: bool) -> None:
        self._cursor = cursor
        self._is_alone = is_alone
        self._is_used = False

    async def fetch_one(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        await self._execute(statement, parameters)
        return await self._cursor.fetchone()

    async def fetch_all(self, statement: str, parameters: Sequence[SqlValue] = ()) -> list[Row]:
        await self._execute(statement, parameters)
        return await self._cursor.fetchall()

    async def _execute(self, statement: str, parameters: Sequence[SqlValue]) -> None:
        if self._is_alone and self._is_used:
            raise _NeedsSnapshot
        self._is_used = True
        await _execute(self._cursor, statement, parameters)


_WRITES = re.compile(r"(?:INSERT INTO|UPDATE|DELETE FROM) (\w+) ")


class _PostgresTransaction:
    """Sends writes whose result nobody sees together, as one statement: each way to the server costs more than they.

    Parts of one statement do not see what the others write. So none reads, and no two write to the same table.
    """

    __slots__ = ("_connection", "_cursor", "_defer", "_tables", "_waiting", "effects")

    def __init__(self, connection: AsyncConnection[Row], cursor: AsyncRawCursor[Row], defer: Defer) -> None:
        self._connection = connection
        self._cursor = cursor
        self._defer = defer
        self._waiting: list[tuple[str, Sequence[SqlValue]]] = []
        self._tables: set[str] = set()
        self.effects = Effects()

    async def fetch_one(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        await self.flush()
        await _execute(self._cursor, statement, parameters)
        return await self._cursor.fetchone()

    async def fetch_all(self, statement: str, parameters: Sequence[SqlValue] = ()) -> list[Row]:
        await self.flush()
        await _execute(self._cursor, statement, parameters)
        return await self._cursor.fetchall()

    async def execute(self, statement: str, parameters: Sequence[SqlValue] = ()) -> None:
        written = _WRITES.match(statement)
        if written is None or "SELECT" in statement:
            await self.flush()
            await _execute(self._cursor, statement, parameters)
            return
        if written[1] in self._tables:
            await self.flush()
        self._tables.add(written[1])
        self._waiting.append((statement, tuple(parameters)))

    async def change(self, statement: str, parameters: Sequence[SqlValue] = ()) -> int:
        await self.flush()
        await _execute(self._cursor, statement, parameters)
        return self._cursor.rowcount

    async def flush(self) -> None:
        """Sends the writes that wait."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self._tables.clear()
        if len(waiting) == 1:
            await _execute(self._cursor, *waiting[0])
        else:
            statements = tuple(statement for statement, _ in waiting)
            await _execute(self._cursor, _together(statements), [value for _, values in waiting for value in values])

    def forget(self) -> None:
        """Drops the writes that wait, those of a unit that is undone."""
        self._waiting.clear()
        self._tables.clear()

    def wake(self, session: SessionRow) -> None:
        self.effects.woken.add(session)

    async def dispatch(self, session: SessionRow, principal: Principal) -> None:
        if session not in self.effects.dispatched:
            self.effects.dispatched[session] = None
            await self.flush()
            await self._defer(self._connection, session, principal)

    def interrupt(self, session: SessionRow) -> None:
        self.effects.interrupted.add(session)


@lru_cache(maxsize=1024)
def _together(statements: tuple[str, ...]) -> str:
    *first, last = statements
    parts = ", ".join(f"s{number} AS ({statement})" for number, statement in enumerate(first))
    return f"WITH {parts} {last}"


async def _execute(cursor: AsyncRawCursor[Row], statement: str, parameters: Sequence[SqlValue]) -> None:
    try:
        await cursor.execute(_numbered(statement), parameters, prepare=_prepare(statement))
    except psycopg.DataError:
        # PostgreSQL's texts hold no NUL; what is only shown may lose it.
        cleaned = [value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in parameters]
        if cleaned == list(parameters):
            raise
        await cursor.execute(_numbered(statement), cleaned)


@dataclass(slots=True, eq=False)
class _Job:
    body: Callable[..., Coroutine[Any, Any, Any]]
    arguments: tuple[Any, ...]
    sessions: tuple[Named, ...]
    future: asyncio.Future[Any]
    since: float
    result: Any = None
    error: BaseException | None = None

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


@dataclass(slots=True, eq=False)
class _Line:
    """Jobs that wait for one another: those of one session, or one job alone."""

    name: Hashable
    jobs: deque[_Job] = field(default_factory=deque[_Job])


class _Lane:
    """Tasks with a connection each, which work lines off. One line is worked on by one task at a time."""

    def __init__(self, url: str, work: Callable[["_Link", list[_Job]], Awaitable[None]]) -> None:
        self._url = url
        self._work = work
        self._lines: dict[Hashable, _Line] = {}
        self._ready: asyncio.Queue[_Line] = asyncio.Queue()
        self._busy = 0
        self._is_idle = anyio.Event()

    def put(self, job: _Job, name: Hashable | None) -> None:
        if name is None:
            self._ready.put_nowait(_Line(None, deque((job,))))
        elif line := self._lines.get(name):
            line.jobs.append(job)
        else:
            line = self._lines[name] = _Line(name, deque((job,)))
            self._ready.put_nowait(line)

    async def serve(self) -> None:
        """Works lines off over one connection, until cancelled."""
        link = _Link(self._url)
        try:
            while True:
                line = await self._ready.get()
                self._busy += 1
                batch = [line.jobs.popleft() for _ in range(min(MAX_BATCH, len(line.jobs)))]
                try:
                    await self._work(link, batch)
                except BaseException as error:  # the task's root: every waiter is told
                    for job in batch:
                        job.error = job.error or error
                    if not isinstance(error, Exception):
                        raise
                finally:
                    for job in batch:
                        job.settle()
                    if line.jobs:
                        self._ready.put_nowait(line)
                    elif line.name is not None:
                        del self._lines[line.name]
                    self._busy -= 1
                    if self._is_quiet:
                        self._is_idle.set()
                        self._is_idle = anyio.Event()
                del line, batch
        finally:
            with anyio.CancelScope(shield=True):
                await link.close()

    @property
    def _is_quiet(self) -> bool:
        return self._busy == 0 and self._ready.empty()

    async def wait_idle(self) -> None:
        while not self._is_quiet:
            await self._is_idle.wait()


class _Link:
    """One connection, made when it is needed and anew when it broke."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: AsyncConnection[Row] | None = None
        self._cursor: AsyncRawCursor[Row] | None = None
        self.life = ""
        """Of the server when the connection was made; another one after a crash, which ends every connection."""

    async def open(self) -> tuple[AsyncConnection[Row], AsyncRawCursor[Row]]:
        if self._connection is None or self._connection.closed:
            self._connection = await connect(self._url)
            self._cursor = AsyncRawCursor(self._connection)
            self.life = await _server_life(self._connection)
        assert self._cursor is not None
        return self._connection, self._cursor

    async def reset(self) -> None:
        """Ends whatever transaction is open; a connection that cannot is given up."""
        connection = self._connection
        if connection is None or connection.closed:
            return
        try:
            if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                await connection.execute("ROLLBACK")
        except psycopg.Error:
            await self.close()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


async def _server_life(connection: AsyncConnection[Row]) -> str:
    """What changes when the server crashes: the content of a table that it does not recover."""
    statement = "SELECT token FROM server_life"
    row = await (await connection.execute(statement)).fetchone()
    if row is None:
        await connection.execute("INSERT INTO server_life VALUES (1, gen_random_uuid()) ON CONFLICT DO NOTHING")
        row = await (await connection.execute(statement)).fetchone()
        assert row is not None
    return row[0]


async def connect(url: str) -> AsyncConnection[Row]:
    """A connection in autocommit, so that each transaction is begun and ended by us."""
    connection = await AsyncConnection.connect(
        url,
        autocommit=True,
        connect_timeout=5,
        application_name="antiphon",
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
    )
    connection.prepared_max = 1024
    # One type for all integers, else each size makes another prepared statement.
    connection.adapters.register_dumper(int, Int8Dumper)
    await connection.execute(f"SET idle_in_transaction_session_timeout = {IDLE_SECONDS * 1000}".encode())
    return connection


class PostgresDatabase:
    """Implements `Database`. Open it with `PostgresDatabase.open`; its schema must be up to date."""

    def __init__(
        self, url: str, *, on_commit: OnCommit, defer: Defer, commit_hook: CommitHook | None, wait_seconds: float
    ) -> None:
        self._url = url
        self._on_commit = on_commit
        self._defer = defer
        self._commit_hook = commit_hook
        self._commits = count(1)
        self._wait_seconds = wait_seconds
        self._is_closed = False
        self._writes = _Lane(url, self._write)
        self._reads = _Lane(url, self._read)
        self._rows: OrderedDict[str, SessionRow] = OrderedDict()
        """Rows by key; a key keeps its row for ever."""
        self._snapshots: set[object] = set()
        """Queries that read with more than one statement."""
        self._loop = asyncio.get_running_loop()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        *,
        on_commit: OnCommit,
        defer: Defer,
        commit_hook: CommitHook | None = None,
        connections: int = 12,
        wait_seconds: float = WAIT_SECONDS,
    ) -> "AsyncGenerator[PostgresDatabase]":
        """A database that works while the context lasts, over at most so many connections."""
        database = cls(url, on_commit=on_commit, defer=defer, commit_hook=commit_hook, wait_seconds=wait_seconds)
        readers = max(1, connections // 3)
        async with anyio.create_task_group() as tasks:
            for _ in range(max(1, connections - readers)):
                tasks.start_soon(database._writes.serve)
            for _ in range(readers):
                tasks.start_soon(database._reads.serve)
            try:
                yield database
            finally:
                with anyio.CancelScope(shield=True):
                    await database.close()
                tasks.cancel_scope.cancel()

    @property
    def failure(self) -> Unavailable | None:
        return _closed() if self._is_closed else None

    async def run(
        self,
        unit: Callable[[Transaction, *Ts], Coroutine[Any, Any, R]],
        *arguments: *Ts,
        sessions: Sequence[Named] = (),
    ) -> R:
        job = self._job(unit, arguments, tuple(self._known(session) for session in sessions))
        self._writes.put(job, job.sessions[0] if len(job.sessions) == 1 else None)
        return await job.future

    async def read(self, query: Callable[[Query, *Ts], Coroutine[Any, Any, R]], *arguments: *Ts) -> R:
        job = self._job(query, arguments, ())
        self._reads.put(job, None)
        return await job.future

    async def close(self) -> None:
        """Commits what waits; the connections end with the context."""
        self._is_closed = True
        with anyio.move_on_after(2 * self._wait_seconds):
            await self._writes.wait_idle()
            await self._reads.wait_idle()

    def _job(
        self, body: Callable[..., Coroutine[Any, Any, Any]], arguments: tuple[Any, ...], sessions: tuple[Named, ...]
    ) -> _Job:
        if self._is_closed:
            raise _closed()
        return _Job(body, arguments, sessions, self._loop.create_future(), time.monotonic())

    def _known(self, session: Named) -> Named:
        if isinstance(session, int) or session.key is None:
            return session
        return self._rows.get(session.key.value, session)

    async def _read(self, link: _Link, batch: list[_Job]) -> None:
        for job in batch:
            while True:
                try:
                    _, cursor = await link.open()
                    job.result = await self._query(link, cursor, job)
                    break
                except psycopg.Error as error:
                    await link.reset()
                    if not _is_lost(error):
                        raise
                    await self._wait_for_server(job, error)

    async def _query(self, link: _Link, cursor: AsyncRawCursor[Row], job: _Job) -> Any:
        if job.body not in self._snapshots:
            try:
                return await job.body(_PostgresQuery(cursor, is_alone=True), *job.arguments)
            except _NeedsSnapshot:
                self._snapshots.add(job.body)
        await cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            job.result = await job.body(_PostgresQuery(cursor, is_alone=False), *job.arguments)
            job.settle()
        finally:
            await link.reset()
        return job.result

    async def _write(self, link: _Link, batch: list[_Job]) -> None:
        """Runs the units in one transaction and settles them; again, as long as that can help."""
        reruns = 0
        is_careful = False
        while True:
            xid = ""
            effects = Effects()
            try:
                connection, cursor = await link.open()
                tx = _PostgresTransaction(connection, cursor, self._defer)
                xid = await self._begin(cursor, batch[0].sessions)
                if not await self._run_units(tx, cursor, batch, is_careful=is_careful):
                    is_careful = True
                    await link.reset()
                    continue
                effects = tx.effects
                await self._commit(cursor, batch)
            except OutcomeUnknown as unknown:
                life = link.life
                await link.close()
                if not await self._has_committed(link, xid, life, batch[0], unknown):
                    continue
            except psycopg.Error as error:
                await link.reset()
                if isinstance(error, psycopg.errors.SerializationFailure | psycopg.errors.DeadlockDetected):
                    reruns += 1
                    if reruns > MAX_RERUNS:
                        raise Unavailable("Store is busy. Try again.", code="store_busy") from error
                    # At once it could take the locks again before the other wakes, and so on for both.
                    await asyncio.sleep(random.uniform(0.5, 1) * RETRY_SECONDS * reruns)
                elif _is_lost(error):
                    await self._wait_for_server(batch[0], error)
                else:
                    raise _translate(error) from error
                continue
            except BaseException:
                await link.reset()
                raise
            break
        if effects:
            self._on_commit(effects.woken, effects.dispatched, effects.interrupted)

    async def _begin(self, cursor: AsyncRawCursor[Row], sessions: tuple[Named, ...]) -> str:
        """Begins, locks the rows of the sessions in their order, and returns the transaction's number."""
        ids = sorted(session for session in sessions if isinstance(session, int))
        statements = ["BEGIN", "SELECT pg_current_xact_id()::text"]
        if len(sessions) > 1:
            statements.append(f"SELECT pg_advisory_xact_lock({SEVERAL_SESSIONS_LOCK})")
        if len(ids) == len(sessions) and ids:
            listed = ", ".join(map(str, ids))
            statements.append(f"SELECT id FROM sessions WHERE id IN ({listed}) ORDER BY id {_LOCK}")
        await cursor.execute("; ".join(statements).encode(), prepare=False)
        cursor.nextset()
        row = await cursor.fetchone()
        assert row is not None
        if len(ids) < len(sessions):
            await self._lock_named(cursor, sessions, ids)
        return row[0]

    async def _lock_named(
        self, cursor: AsyncRawCursor[Row], sessions: tuple[Named, ...], ids: list[SessionRow]
    ) -> None:
        """Locks the rows of sessions that were named by key or id; of a key without a row, the making of one."""
        targets = [session for session in sessions if not isinstance(session, int)]
        keys = sorted({target.key.value for target in targets if target.key is not None})
        session_ids = sorted({str(target.session_id) for target in targets if target.session_id is not None})
        statement = (
            "SELECT id, key FROM sessions WHERE id = ANY($1) OR key = ANY($2) "
            f"OR id IN (SELECT session FROM incarnations WHERE id = ANY($3)) ORDER BY id {_LOCK}"
        )
        await cursor.execute(statement, (ids, keys, session_ids))
        found = await cursor.fetchall()
        missing = set(keys).difference(row[1] for row in found)
        if missing or not found:
            for name in sorted(missing or set(session_ids)):
                await cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (name,))
            await cursor.execute(statement, (ids, keys, session_ids))
            found = await cursor.fetchall()
        for id, key in found:
            self._rows[key] = id
        while len(self._rows) > MAX_KNOWN_KEYS:
            self._rows.popitem(last=False)

    async def _run_units(
        self, tx: _PostgresTransaction, cursor: AsyncRawCursor[Row], batch: list[_Job], *, is_careful: bool
    ) -> bool:
        """Runs each unit; False if one raised and all must run again, each behind a savepoint."""
        for job in batch:
            job.error = None
            before = tx.effects.copy() if is_careful else None
            if is_careful:
                await cursor.execute("SAVEPOINT unit")
            try:
                job.result = await job.body(tx, *job.arguments)
                await tx.flush()
            except psycopg.Error as error:
                if not is_careful or _is_lost(error) or _is_beaten(error):
                    if len(batch) == 1 or _is_lost(error) or _is_beaten(error):
                        raise
                    return False
                job.error = _translate(error)
            except Exception as error:
                if not is_careful:
                    if len(batch) > 1:
                        return False
                    raise
                job.error = error
            if before is not None:
                if job.error is not None:
                    tx.effects = before
                    tx.forget()
                    await cursor.execute("ROLLBACK TO SAVEPOINT unit")
                await cursor.execute("RELEASE SAVEPOINT unit")
        return True

    async def _commit(self, cursor: AsyncRawCursor[Row], batch: list[_Job]) -> None:
        number, names = 0, list[str]()
        if self._commit_hook is not None:
            number, names = next(self._commits), [job.body.__name__ for job in batch]
            self._commit_hook(number, "before", names)
        try:
            await cursor.execute("COMMIT")
        except psycopg.Error as error:
            if _is_lost(error):
                raise OutcomeUnknown from error
            raise
        if self._commit_hook is not None:
            self._commit_hook(number, "after", names)

    async def _has_committed(self, link: _Link, xid: str, life: str, job: _Job, unknown: OutcomeUnknown) -> bool:
        """Asks the server what became of a transaction whose COMMIT was not answered.

        A server that crashed meanwhile gives the number of one that was lost to another. So of its answers only
        that it knows of no commit is believed then.
        """
        while True:
            try:
                _, cursor = await link.open()
                await cursor.execute("SELECT pg_xact_status($1::xid8)", (xid,))
                row = await cursor.fetchone()
            except psycopg.errors.InvalidParameterValue:
                await link.reset()
                return False  # a number that the server has not given yet
            except psycopg.Error as error:
                await link.close()
                if not _is_lost(error):
                    raise
                try:
                    await self._wait_for_server(job, error)
                except Unavailable as unavailable:
                    raise _unknown() from unavailable
                continue
            status = None if row is None else row[0]
            if status == "aborted" or (status == "in progress" and link.life != life):
                return False
            if status == "committed" and link.life == life:
                return True
            if status == "in progress":
                await asyncio.sleep(RETRY_SECONDS)
                continue
            raise _unknown() from unknown

    async def _wait_for_server(self, job: _Job, error: psycopg.Error) -> None:
        """A moment, in which a lost server may come back. Raises `Unavailable` after the job's deadline."""
        if time.monotonic() - job.since >= self._wait_seconds:
            raise Unavailable(
                "Database cannot be reached: nothing was stored. Try again in a moment.", code="store_unreachable"
            ) from error
        await asyncio.sleep(RETRY_SECONDS)


def _is_beaten(error: psycopg.Error) -> bool:
    return isinstance(error, psycopg.errors.SerializationFailure | psycopg.errors.DeadlockDetected)


def _is_lost(error: psycopg.Error) -> bool:
    """Whether the server, not the statement, is what failed."""
    if error.sqlstate is not None:
        return error.sqlstate.startswith(_LOST)
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def _translate(error: psycopg.Error) -> Exception:
    """What the waiter is told for what the server answered."""
    match error:
        case psycopg.errors.DiskFull():
            return Unavailable("Disk is full: nothing was stored. Free some space and try again.", code="disk_full")
        case psycopg.errors.InsufficientPrivilege():
            return Unavailable(
                f"Database refuses: {str(error).strip()}. Give its user the rights that docs/OPERATIONS.md lists.",
                code="store_denied",
            )
        case _:
            return error


def _unknown() -> Unavailable:
    return Unavailable(
        "It is not known whether this was stored: the database went away meanwhile. "
        "Send it again with the same message id.",
        code="outcome_unknown",
    )


def _closed() -> Unavailable:
    return Unavailable("Store is closed", code="store_closed")
