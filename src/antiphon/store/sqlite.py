"""The embedded database: one SQLite file, one writer thread with group commit, a few reader threads."""

import asyncio
import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol, TypeVar, TypeVarTuple

from antiphon.domain.actor import Principal
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import SessionRow
from antiphon.store.database import CommitHook, Named, OnCommit, Query, Row, SqlValue, Transaction
from antiphon.store.effects import Effects
from antiphon.store.migrate import migrate, recognise
from antiphon.store.migrations import StoreUnusable

logger = logging.getLogger(__name__)

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

MAX_BATCH = 64
"""The most units in one COMMIT; limits how many a failed unit makes run again."""


UNITS_BETWEEN_CHECKPOINTS = 256
"""About 4 MiB of write-ahead log. A log of bounded size is overwritten, never extended: half the fsync."""
MAX_LOG_BYTES = 16 * 1024 * 1024
"""The size to which a log is cut after a long reader made it grow."""


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


def take_lock(path: Path) -> int:
    """Locks the database; closing the returned file unlocks it. Raises `StoreUnusable` if another process has it."""
    lock_path = path.with_name(path.name + ".lock")
    try:
        file = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnusable(f"Home is not writable: {str(path.parent)!r} ({error.strerror})") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        raise StoreUnusable(
            f"Home is in use by another process: {str(path.parent)!r}. "
            "Stop it first, or choose another home with --home.",
            code="home_in_use",
        ) from error
    return file


def connect_sqlite(path: Path) -> SqliteConnection:
    """A connection in autocommit mode: our code begins and ends each transaction."""
    return sqlite3.connect(path, isolation_level=None, cached_statements=512, check_same_thread=False)


@dataclass(slots=True)
class _Job:
    body: Callable[..., Coroutine[Any, Any, Any]]
    arguments: tuple[Any, ...]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


class _SqliteTransaction:
    """Never suspends, so that one `send(None)` drives a whole unit."""

    __slots__ = ("_connection", "_execute", "effects")

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self.effects = Effects()

    async def fetch_one(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        return self._execute(statement, parameters).fetchone()

    async def fetch_all(self, statement: str, parameters: Sequence[SqlValue] = ()) -> list[Row]:
        return self._execute(statement, parameters).fetchall()

    async def execute(self, statement: str, parameters: Sequence[SqlValue] = ()) -> None:
        self._execute(statement, parameters)

    async def change(self, statement: str, parameters: Sequence[SqlValue] = ()) -> int:
        return self._execute(statement, parameters).rowcount

    def wake(self, session: SessionRow) -> None:
        self.effects.woken.add(session)

    async def dispatch(self, session: SessionRow, principal: Principal) -> None:
        self.effects.dispatched[session] = None

    def interrupt(self, session: SessionRow) -> None:
        self.effects.interrupted.add(session)


class SqliteDatabase:
    """Implements `Database`. Open it with `SqliteDatabase.open`, close it with `close`."""

    def __init__(
        self,
        path: Path,
        *,
        connect: Connect,
        on_commit: OnCommit,
        commit_hook: CommitHook | None,
        synchronous: str,
    ) -> None:
        self.path = path
        self._connect = connect
        self._on_commit = on_commit
        self._commit_hook = commit_hook
        self._synchronous = synchronous
        self._commits = 0
        self._failure: Unavailable | None = None
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
        now_ms: int,
        connect: Connect = connect_sqlite,
        commit_hook: CommitHook | None = None,
        readers: int = 2,
        synchronous: str = "FULL",
    ) -> "SqliteDatabase":
        """An open database with its schema up to date.

        Raises `StoreUnusable` for a file that is in use, corrupt, from a newer version, or not ours.
        """
        database = cls(path, connect=connect, on_commit=on_commit, commit_hook=commit_hook, synchronous=synchronous)
        database._lock_file = take_lock(path)
        try:
            writer = database._open_connection()
            migrate(writer, path=path, now_ms=now_ms)
            connections = [database._open_connection() for _ in range(readers)]
            checkpointer = database._open_connection()
        except BaseException:
            database._release_lock()
            raise
        database._start(writer, connections, checkpointer)
        return database

    @property
    def failure(self) -> Unavailable | None:
        """Why the store acknowledges no more commits; None while it works."""
        return self._failure or (_closed() if self._is_closed else None)

    async def run(
        self,
        unit: Callable[[Transaction, *Ts], Coroutine[Any, Any, R]],
        *arguments: *Ts,
        sessions: Sequence[Named] = (),
    ) -> R:
        if self.failure is not None:
            raise self.failure
        job = _Job(unit, arguments, self._loop.create_future())
        self._writes.put(job)
        return await job.future

    async def read(self, query: Callable[[Query, *Ts], Coroutine[Any, Any, R]], *arguments: *Ts) -> R:
        if self._is_closed:
            raise _closed()
        job = _Job(query, arguments, self._loop.create_future())
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

    def _open_connection(self) -> SqliteConnection:
        try:
            connection = self._connect(self.path)
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
            raise _unusable(self.path, error) from error
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
            transaction = _SqliteTransaction(connection)
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
        try:
            for job in batch:
                job.result = _drive(job, transaction)
                if len(batch) < MAX_BATCH:
                    self._join_next(batch)
        except BaseException as error:
            connection.execute("ROLLBACK") if connection.in_transaction else None
            self._judge(error)
            if self._failure is not None:
                raise
            transaction.effects = Effects()
            self._replay(connection, transaction, batch)
        self._commit(connection, batch)

    def _join_next(self, batch: list[_Job]) -> None:
        try:
            job = self._writes.get_nowait()
        except Empty:
            return
        if job is None:
            self._writes.put(None)
            return
        batch.append(job)

    def _replay(self, connection: SqliteConnection, transaction: _SqliteTransaction, batch: list[_Job]) -> None:
        """Runs each unit again under a savepoint, so that a unit that raises undoes only itself."""
        connection.execute("BEGIN IMMEDIATE")
        for job in batch:
            before = transaction.effects.copy()
            connection.execute("SAVEPOINT unit")
            try:
                job.result = _drive(job, transaction)
            except Exception as error:
                if isinstance(error, sqlite3.Error) and not connection.in_transaction:
                    raise
                connection.execute("ROLLBACK TO unit")
                job.error = self._judge(error)
                if self._failure is not None:
                    raise
                transaction.effects = before
            connection.execute("RELEASE unit")

    def _commit(self, connection: SqliteConnection, batch: list[_Job]) -> None:
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
        cause = self._judge(error)
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error as again:
            self._failure = self._failure or _failed(again)
        for job in batch:
            job.error = job.error or cause

    def _judge(self, error: BaseException) -> BaseException:
        cause = _translate(error)
        if isinstance(cause, Unavailable) and cause.code in ("store_failed", "store_corrupt"):
            self._failure = cause
        return cause

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
        while self._checkpoints.get():
            self._run_checkpoint(connection)
            self._is_checkpoint_to_end = True
        _close(connection)

    def _run_checkpoint(self, connection: SqliteConnection) -> None:
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except Exception as error:  # nobody waits for this; the log stays long, and a failing disk is remembered
            self._judge(error)

    def _read_loop(self, connection: SqliteConnection) -> None:
        query = _SqliteTransaction(connection)
        while (job := self._reads.get()) is not None:
            try:
                connection.execute("BEGIN")
                job.result = _drive(job, query)
            except Exception as error:
                job.error = _translate(error)
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")
            self._loop_call(self._settle, [job], None)
            del job
        _close(connection)

    def _loop_call(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    def _settle(self, batch: Sequence[_Job], effects: Effects | None) -> None:
        if effects:
            self._on_commit(effects.woken, effects.dispatched, effects.interrupted)
        for job in batch:
            if job.future.done():
                continue
            if job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.result)


def _drive(job: _Job, transaction: _SqliteTransaction) -> Any:
    coroutine = job.body(transaction, *job.arguments)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError(f"Unit {job.body.__name__!r} awaited something other than its transaction")


def _close(connection: SqliteConnection) -> None:
    """Closes the file. The last connection to close moves the log into it, which fails on a broken or full disk."""
    try:
        connection.close()
    except sqlite3.Error as error:
        logger.warning("Database was not closed cleanly", extra={"action": "store_close_failed", "error": str(error)})


def _translate(error: BaseException) -> BaseException:
    """The error to raise for the driver's error."""
    if not isinstance(error, sqlite3.Error):
        return error
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    match primary:
        case sqlite3.SQLITE_FULL:
            return Unavailable("Disk is full: nothing was stored. Free some space and try again.", code="disk_full")
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN:
            return _failed(error)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return Unavailable(f"Store is corrupt ({error}). Restore a backup.", code="store_corrupt")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Unavailable("Store is busy: another program has locked the database. Try again.", code="store_busy")
        case _:
            return error


def _closed() -> Unavailable:
    return Unavailable("Store is closed", code="store_closed")


def _failed(error: BaseException) -> Unavailable:
    return Unavailable(
        f"Store failed ({error}): nothing is stored until the process is restarted.",
        code="store_failed",
    )


def _unusable(path: Path, error: sqlite3.DatabaseError) -> StoreUnusable:
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if primary in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return StoreUnusable(
            f"Database is corrupt: {str(path)!r} ({error}). It was not changed. "
            "Restore a backup, or move it away to start with an empty database.",
            code="store_corrupt",
        )
    return StoreUnusable(f"Database cannot be opened: {str(path)!r} ({error})")
