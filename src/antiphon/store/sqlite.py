"""The embedded database: one SQLite file, one writer thread with group commit, a few reader threads."""

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol, TypeVar, TypeVarTuple

from msgspec import Struct

from antiphon.domain.actor import Asker
from antiphon.domain.errors import AntiphonError, Unavailable
from antiphon.domain.ids import SessionRow
from antiphon.metrics import COMMIT_SECONDS, UNITS
from antiphon.store.database import CommitHook, Kept, Named, OnCommit, Query, Row, SqlValue, Transaction
from antiphon.store.effects import Effects
from antiphon.store.home_lock import OpenFiles, take_lock
from antiphon.store.migrate import find_schema_damage, migrate, recognise
from antiphon.store.migrations import PROBE, StoreUnusable
from antiphon.store.moments import AtMoment, Moment, Moments
from antiphon.store.sqlite_errors import (
    closed,
    corrupt,
    failed,
    is_about_schema,
    is_damage,
    is_lasting,
    is_undecodable,
    translate,
    translate_read,
    unusable,
)
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

MAX_BATCH = 64
"""The most units in one COMMIT; limits how many a failed unit makes run again."""
CAREFUL_BATCHES = 64
"""After a unit that raised when it had written: in so many batches such a unit makes no other run again."""

UNITS_BETWEEN_CHECKPOINTS = 256
"""About 4 MiB of write-ahead log. A log of bounded size is overwritten, never extended: half the fsync."""
MAX_LOG_BYTES = 16 * 1024 * 1024
"""The size to which a log is cut after a long reader made it grow."""
WATCH_SECONDS = 0.5
"""Between looks whether the database's files are still in their place."""


class Cursor(Protocol):
    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Row | None: ...
    def fetchall(self) -> list[Row]: ...


class SqliteConnection(Protocol):
    """The part of a driver that the store needs; tests use one whose disk loses power."""

    @property
    def in_transaction(self) -> bool: ...
    def execute(self, statement: str, parameters: Sequence[SqlValue] = (), /) -> Cursor: ...
    def close(self) -> None: ...


Connect = Callable[[Path], SqliteConnection]


def connect_sqlite(path: Path) -> SqliteConnection:
    """A connection in autocommit mode: our code begins and ends each transaction."""
    return sqlite3.connect(path, isolation_level=None, cached_statements=512, check_same_thread=False)


class _Job(Struct):
    body: Callable[..., Coroutine[Any, Any, Any]]
    arguments: tuple[Any, ...]
    future: asyncio.Future[Any]
    moment: Moment
    result: Any = None
    error: BaseException | None = None


class _SqliteTransaction(AtMoment):
    """Never suspends, so that one `send(None)` drives a whole unit."""

    __slots__ = ("_connection", "_execute", "effects", "has_written", "kept")

    def __init__(self, connection: SqliteConnection, moment: Moment) -> None:
        super().__init__(moment)
        self._connection = connection
        self._execute = connection.execute
        self.effects = Effects()
        self.has_written = False
        """Whether the present unit may have."""
        self.kept: list[Kept] = []
        """What the present unit stores in any case."""

    async def fetch_one(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        if not statement.startswith("SELECT"):
            self.has_written = True
        return self._execute(statement, parameters).fetchone()

    async def fetch_all(self, statement: str, parameters: Sequence[SqlValue] = ()) -> list[Row]:
        if not statement.startswith("SELECT"):
            self.has_written = True
        return self._execute(statement, parameters).fetchall()

    async def fetch_held(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        return await self.fetch_one(statement, parameters)

    async def execute(self, statement: str, parameters: Sequence[SqlValue] = ()) -> None:
        self.has_written = True
        self._execute(statement, parameters)

    async def change(self, statement: str, parameters: Sequence[SqlValue] = ()) -> int:
        self.has_written = True
        return self._execute(statement, parameters).rowcount

    @asynccontextmanager
    async def attempt(self) -> AsyncGenerator[None]:
        before, had_written, kept = self.effects.copy(), self.has_written, len(self.kept)
        self._execute("SAVEPOINT attempt")
        try:
            yield
        except AntiphonError:
            self._execute("ROLLBACK TO attempt")
            self._execute("RELEASE attempt")
            self.effects, self.has_written = before, had_written
            for write, arguments in self.kept[kept:]:
                await write(self, *arguments)
            raise
        self._execute("RELEASE attempt")

    async def keep(self, write: Callable[[Transaction, *Ts], Coroutine[Any, Any, R]], *arguments: *Ts) -> R:
        self.kept.append((write, arguments))
        return await write(self, *arguments)

    def hold(self, *sessions: SessionRow) -> None:
        """The one writer holds everything."""

    def wake(self, session: SessionRow) -> None:
        self.effects.woken.add(session)

    async def dispatch(self, session: SessionRow, asker: Asker) -> None:
        self.effects.dispatched[session] = None

    def interrupt(self, session: SessionRow) -> None:
        self.effects.interrupted.add(session)


class SqliteDatabase:
    """Implements `Database`. Open it with `SqliteDatabase.open`, close it with `close`."""

    def __init__(
        self,
        path: Path,
        *,
        moments: Moments,
        connect: Connect,
        on_commit: OnCommit,
        commit_hook: CommitHook | None,
        synchronous: str,
    ) -> None:
        self.path = path
        self._moments = moments
        self._connect = connect
        self._on_commit = on_commit
        self._commit_hook = commit_hook
        self._synchronous = synchronous
        self._commits = 0
        self._careful_batches = 0
        """How many batches begin with a savepoint for each unit, since one raised after it had written."""
        self._failure: Unavailable | None = None
        self._trouble: Unavailable | None = None
        self._storing = Trouble(
            logger, "Storing", action="store_failed", means="Nothing is acknowledged until this is over."
        )
        self._files: OpenFiles | None = None
        self._is_closed = False
        self._writes: SimpleQueue[_Job | None] = SimpleQueue()
        self._reads: SimpleQueue[_Job | None] = SimpleQueue()
        self._checkpoints: SimpleQueue[bool] = SimpleQueue()
        self._units_since_checkpoint = 0
        self._is_checkpoint_to_end = False
        self._threads: list[Thread] = []
        self._loop = asyncio.get_running_loop()
        self._lock_file = -1

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        on_commit: OnCommit,
        moments: Moments,
        connect: Connect = connect_sqlite,
        commit_hook: CommitHook | None = None,
        readers: int = 2,
        synchronous: str = "FULL",
    ) -> "SqliteDatabase":
        """An open database with its schema up to date.

        Raises `StoreUnusable` for a file that is in use, corrupt, from a newer version, or not ours.
        """
        database = cls(
            path,
            moments=moments,
            connect=connect,
            on_commit=on_commit,
            commit_hook=commit_hook,
            synchronous=synchronous,
        )
        database._lock_file = take_lock(path)
        try:
            writer = database._open_connection(is_checked=True)
            migrate(writer, path=path, now_ms=moments.now_ms)
            connections = [database._open_connection() for _ in range(readers)]
            checkpointer = database._open_connection()
            _check_room(writer, path)
            database._files = OpenFiles(path, lock=database._lock_file)
        except BaseException:
            database._release_lock()
            raise
        database._start(writer, connections, checkpointer)
        return database

    @property
    def failure(self) -> Unavailable | None:
        """Why the store acknowledges no more commits; None while it works."""
        return self._failure or (closed() if self._is_closed else None)

    @property
    def trouble(self) -> Unavailable | None:
        """Why the last unit was not stored, if that may pass; None once a unit was stored."""
        return self._trouble

    async def run(
        self,
        unit: Callable[[Transaction, *Ts], Coroutine[Any, Any, R]],
        *arguments: *Ts,
        sessions: Sequence[Named] = (),
    ) -> R:
        if self._failure is not None or self._is_closed:
            raise self._failure or closed()
        job = _Job(unit, arguments, self._loop.create_future(), self._moments.draw())
        self._writes.put(job)
        return await job.future

    async def read(self, query: Callable[[Query, *Ts], Coroutine[Any, Any, R]], *arguments: *Ts) -> R:
        if self._is_closed:
            raise closed()
        job = _Job(query, arguments, self._loop.create_future(), self._moments.draw())
        self._reads.put(job)
        return await job.future

    async def close(self) -> None:
        """Commits the waiting units, then closes the file. May be called twice.

        The writer closes last: the last connection moves the write-ahead log into the database and removes it.
        """
        threads, self._threads = self._threads, []
        if not threads:
            return
        self._is_closed = True
        writer, *others = threads
        for _ in others[1:]:
            self._reads.put(None)
        self._checkpoints.put(False)
        for thread in others:
            await asyncio.to_thread(thread.join)
        self._writes.put(None)
        await asyncio.to_thread(writer.join)
        self._release_lock()

    def _release_lock(self) -> None:
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    def _open_connection(self, *, is_checked: bool = False) -> SqliteConnection:
        try:
            connection = self._connect(self.path)
            if is_checked:
                recognise(connection, self.path)  # before the journal mode, which changes the file
            for pragma in (
                "journal_mode=WAL",
                f"synchronous={self._synchronous}",
                "foreign_keys=ON",
                "busy_timeout=5000",
                "cache_size=-8192",
                "temp_store=MEMORY",
                "wal_autocheckpoint=0",
                f"journal_size_limit={MAX_LOG_BYTES}",
            ):
                connection.execute(f"PRAGMA {pragma}").fetchall()
        except sqlite3.DatabaseError as error:
            raise unusable(self.path, error) from error
        return connection

    def _start(
        self, writer: SqliteConnection, readers: Sequence[SqliteConnection], checkpointer: SqliteConnection
    ) -> None:
        self._threads = [
            Thread(target=self._write_loop, args=(writer,), name="antiphon-writer", daemon=True),
            Thread(target=self._checkpoint_loop, args=(checkpointer,), name="antiphon-checkpointer", daemon=True),
        ]
        for connection in readers:
            self._threads.append(
                Thread(target=self._read_loop, args=(connection,), name="antiphon-reader", daemon=True)
            )
        for thread in self._threads:
            thread.start()

    def _write_loop(self, connection: SqliteConnection) -> None:
        while (job := self._writes.get()) is not None:
            batch = [job]
            transaction = _SqliteTransaction(connection, job.moment)
            try:
                self._run_batch(connection, transaction, batch)
            except BaseException as error:  # the thread's root: every waiter gets the error, the thread continues
                self._fail_batch(connection, batch, error)
            self._loop_call(self._settle, batch, transaction.effects)
            self._checkpoint(connection, len(batch))
            del job, batch
        _close(connection)

    def _run_batch(self, connection: SqliteConnection, transaction: _SqliteTransaction, batch: list[_Job]) -> None:
        """Runs and commits the waiting units; units that arrive meanwhile join."""
        if self._failure is not None:
            raise self._failure
        connection.execute("BEGIN IMMEDIATE")
        is_careful, self._careful_batches = self._careful_batches > 0, max(0, self._careful_batches - 1)
        try:
            for job in batch:
                if is_careful:
                    self._run_apart(connection, transaction, job)
                else:
                    _run_unit(transaction, job)
                if len(batch) < MAX_BATCH:
                    self._join_next(batch)
        except BaseException as error:
            connection.execute("ROLLBACK") if connection.in_transaction else None
            self._judge(error, connection)
            if self._failure is not None:
                raise
            transaction.effects = Effects()
            self._careful_batches = CAREFUL_BATCHES
            connection.execute("BEGIN IMMEDIATE")
            for job in batch:
                self._run_apart(connection, transaction, job)
        self._commit(connection, batch)
        if self._trouble is not None:
            self._look_for_room(connection)

    def _look_for_room(self, connection: SqliteConnection) -> None:
        """Ends the trouble if something can be stored; the unit that was committed may have written nothing."""
        try:
            _check_room(connection, self.path)
        except StoreUnusable:
            connection.execute("ROLLBACK") if connection.in_transaction else None
            return
        self._trouble = None
        self._storing.worked()

    def _join_next(self, batch: list[_Job]) -> None:
        try:
            job = self._writes.get_nowait()
        except Empty:
            return
        if job is None:
            self._writes.put(None)
            return
        batch.append(job)

    def _run_apart(self, connection: SqliteConnection, transaction: _SqliteTransaction, job: _Job) -> None:
        """Runs a unit under a savepoint, so that it undoes only itself if it raises."""
        before = transaction.effects.copy()
        connection.execute("SAVEPOINT unit")
        try:
            _run_unit(transaction, job)
        except Exception as error:
            if isinstance(error, sqlite3.Error) and not connection.in_transaction:
                raise
            connection.execute("ROLLBACK TO unit")
            job.error = self._judge(error, connection)
            if self._failure is not None:
                raise
            transaction.effects = before
            if isinstance(error, AntiphonError):
                for write, arguments in transaction.kept:
                    _drive(write, transaction, arguments)
        connection.execute("RELEASE unit")

    def _commit(self, connection: SqliteConnection, batch: list[_Job]) -> None:
        began_at = time.monotonic()
        self._commit_batch(connection, batch)
        COMMIT_SECONDS.observe(time.monotonic() - began_at)
        UNITS.add(len(batch))

    def _commit_batch(self, connection: SqliteConnection, batch: list[_Job]) -> None:
        hook = self._commit_hook
        if hook is None:
            connection.execute("COMMIT")
            return
        self._commits += 1
        names = [job.body.__name__ for job in batch]
        hook(self._commits, "before", names)
        connection.execute("COMMIT")
        hook(self._commits, "after", names)

    def _fail_batch(self, connection: SqliteConnection, batch: list[_Job], error: BaseException) -> None:
        cause = self._judge(error, connection)
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error as again:
            self._fail(failed(again))
        for job in batch:
            job.error = job.error or cause

    def _judge(self, error: BaseException, connection: SqliteConnection) -> BaseException:
        """The error for the waiters of a unit; remembers one after which nothing may be stored."""
        cause = self._schema_damage(error, connection) or translate(error, self.path)
        if isinstance(cause, Unavailable):
            if cause.code == "disk_full":
                self._trouble = cause
                self._storing.failed(cause)
            elif is_lasting(error):
                self._fail(cause)
        return cause

    def _judge_read(self, error: BaseException, connection: SqliteConnection | None) -> BaseException:
        """The error for the waiter of a read. Where a page is damaged, writing could spread the damage."""
        cause = self._schema_damage(error, connection) or translate_read(error, self.path)
        if isinstance(cause, Unavailable) and is_damage(error):
            self._fail(cause)
        return cause

    def _schema_damage(self, error: BaseException, connection: SqliteConnection | None) -> Unavailable | None:
        """What another program has taken out of the schema, if that is the reason of the error."""
        if connection is None or not is_about_schema(error):
            return None
        try:
            why = find_schema_damage(connection)
        except sqlite3.Error as again:
            why = str(again)
        if why is None:
            return None
        self._fail(cause := corrupt(why))
        return cause

    def _fail(self, failure: Unavailable) -> None:
        self._failure = self._failure or failure
        self._storing.failed(self._failure)

    def _checkpoint(self, connection: SqliteConnection, units: int) -> None:
        """Keeps the write-ahead log short: most of the work happens beside the writer, which then finishes it.

        A log restarts from its beginning only when the database contains all of it, which never happens beside a busy
        writer.
        """
        self._units_since_checkpoint += units
        if self._is_checkpoint_to_end:
            self._is_checkpoint_to_end = False
            self._units_since_checkpoint = 0
            self._run_checkpoint(connection)
        elif self._units_since_checkpoint >= UNITS_BETWEEN_CHECKPOINTS and self._checkpoints.empty():
            self._units_since_checkpoint = 0
            self._checkpoints.put(True)

    def _checkpoint_loop(self, connection: SqliteConnection) -> None:
        """Runs checkpoints, and looks after the files between them."""
        is_open = True
        while is_open:
            try:
                is_open = self._checkpoints.get(timeout=WATCH_SECONDS)
            except Empty:
                self._watch_files()
                continue
            if is_open:
                self._watch_files()
                self._run_checkpoint(connection)
                self._is_checkpoint_to_end = True
        _close(connection)

    def _watch_files(self) -> None:
        if self._failure is None and self._files is not None and (problem := self._files.find_problem()):
            self._fail(problem)

    def _run_checkpoint(self, connection: SqliteConnection) -> None:
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except Exception as error:  # nobody waits for this; the log stays long, and a failing disk is remembered
            self._judge(error, connection)

    def _read_loop(self, first: SqliteConnection) -> None:
        connection: SqliteConnection | None = first
        while (job := self._reads.get()) is not None:
            try:
                connection = connection or self._open_reader()
                job.result = _read(connection, job)
            except BaseException as error:  # the thread's root: the waiter gets the error, the thread continues
                job.error = self._judge_read(error, connection)
                if connection is not None and isinstance(error, sqlite3.Error):
                    _close(connection)
                    connection = None
            self._loop_call(self._settle, [job], None)
            del job
        if connection is not None:
            _close(connection)

    def _open_reader(self) -> SqliteConnection:
        """A connection in place of one that failed; never to a file that stands in the place of ours."""
        self._watch_files()
        if self._failure is not None and self._failure.code == "store_replaced":
            raise self._failure
        return self._open_connection(is_checked=True)

    def _loop_call(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    def _settle(self, batch: Sequence[_Job], effects: Effects | None) -> None:
        try:
            if effects:
                self._on_commit(effects.woken, effects.dispatched, effects.interrupted)
        finally:
            for job in batch:
                if job.future.done():
                    continue
                if job.error is not None:
                    job.future.set_exception(job.error)
                else:
                    job.future.set_result(job.result)


def _run_unit(transaction: _SqliteTransaction, job: _Job) -> None:
    """Notes what a unit returns, or raises before it has written; what it raises afterwards goes on."""
    transaction.has_written = False
    transaction.moment = job.moment
    job.moment.begin()
    if transaction.kept:
        transaction.kept.clear()
    coroutine = job.body(transaction, *job.arguments)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        job.result, job.error = stop.value, None
    except AntiphonError as error:
        if transaction.has_written:
            raise
        job.error = error
    else:
        raise _wandered(coroutine, job.body)


def _drive(
    body: Callable[..., Coroutine[Any, Any, Any]], transaction: _SqliteTransaction, arguments: tuple[Any, ...]
) -> Any:
    coroutine = body(transaction, *arguments)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise _wandered(coroutine, body)


def _wandered(coroutine: Coroutine[Any, Any, Any], body: Callable[..., Any]) -> RuntimeError:
    coroutine.close()
    return RuntimeError(f"Unit {body.__name__!r} awaited something other than its transaction")


def _read(connection: SqliteConnection, job: _Job) -> Any:
    """The result of the query; where a stored text is not UTF-8, with marks in the place of what cannot be read."""
    try:
        return _read_in_snapshot(connection, job)
    except sqlite3.OperationalError as error:
        if not is_undecodable(error) or not isinstance(connection, sqlite3.Connection):
            raise
    connection.text_factory = _lenient_text
    try:
        return _read_in_snapshot(connection, job)
    finally:
        connection.text_factory = str


def _read_in_snapshot(connection: SqliteConnection, job: _Job) -> Any:
    connection.execute("BEGIN")
    try:
        return _drive(job.body, _SqliteTransaction(connection, job.moment), job.arguments)
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def _lenient_text(stored: bytes) -> str:
    return stored.decode(errors="replace")


def _check_room(connection: SqliteConnection, path: Path) -> None:
    """Stores nothing new, to know before the first acknowledgement whether anything can be. Raises `StoreUnusable`."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        for statement in PROBE:
            connection.execute(statement)
        connection.execute("COMMIT")
    except sqlite3.DatabaseError as error:
        raise unusable(path, error) from error


def _close(connection: SqliteConnection) -> None:
    """Closes the file. The last connection to close moves the log into it, which fails on a broken or full disk."""
    try:
        connection.close()
    except sqlite3.Error as error:
        logger.warning("Database was not closed cleanly", extra={"action": "store_close_failed", "error": str(error)})
