"""The scale-out database: PostgreSQL, shared by any number of processes."""

import asyncio
import logging
import random
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, TypeVar, TypeVarTuple

import anyio
import psycopg
from psycopg import AsyncRawCursor

from antiphon.domain.errors import AntiphonError, Unavailable
from antiphon.domain.ids import SessionRow
from antiphon.metrics import COMMIT_SECONDS, UNITS
from antiphon.store.database import CommitHook, Named, OnCommit, Query, Row, Transaction
from antiphon.store.effects import Effects
from antiphon.store.migrations import PROBE
from antiphon.store.moments import Moments
from antiphon.store.postgres.errors import OutcomeUnknown, closed, is_beaten, is_lost, outcome_unknown, translate
from antiphon.store.postgres.lane import Lane, LaneJob
from antiphon.store.postgres.link import Link
from antiphon.store.postgres.transaction import Defer, NeedsSnapshot, PostgresQuery, PostgresTransaction
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

R = TypeVar("R")

Ts = TypeVarTuple("Ts")

MAX_RERUNS = 5
"""Of a transaction that lost a conflict with another one."""

WAIT_SECONDS = 10.0
"""How long a unit waits for an unreachable server."""

RETRY_SECONDS = 0.1

_LOCK = "FOR NO KEY UPDATE"
"""The lock on a session's row: other units may not write to the session, but may write rows that refer to it."""

SEVERAL_SESSIONS_LOCK = 7465
"""Of units that name several sessions, one at a time holds it; differs from the lock of migrations."""

MAX_KNOWN_KEYS = 65_536

DAMAGE_SECONDS = 60.0
"""How long damage that was seen counts: the server may be repaired while this process runs."""


class PostgresDatabase:
    """Implements `Database`. Open it with `PostgresDatabase.open`; its schema must be up to date."""

    def __init__(
        self,
        url: str,
        *,
        moments: Moments,
        on_commit: OnCommit,
        defer: Defer,
        commit_hook: CommitHook | None,
        wait_seconds: float,
    ) -> None:
        self._url = url
        self._moments = moments
        self._on_commit = on_commit
        self._defer = defer
        self._commit_hook = commit_hook
        self._commits = count(1)
        self._wait_seconds = wait_seconds
        self._is_closed = False
        self._trouble: Unavailable | None = None
        self._damage: Unavailable | None = None
        self._damaged_until = 0.0
        self._storing = Trouble(
            logger, "Storing", action="store_failed", means="Requests that it affects are answered with 503."
        )
        self._writes = Lane(url, self._write)
        self._reads = Lane(url, self._read)
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
        moments: Moments,
        commit_hook: CommitHook | None = None,
        connections: int = 12,
        wait_seconds: float = WAIT_SECONDS,
    ) -> "AsyncGenerator[PostgresDatabase]":
        """A database that works while the context lasts, with a limited number of connections.

        A scope around the context that is cancelled does not reach the connections: what the context does at its end
        still needs them.
        """
        database = cls(
            url,
            moments=moments,
            on_commit=on_commit,
            defer=defer,
            commit_hook=commit_hook,
            wait_seconds=wait_seconds,
        )
        serving = anyio.CancelScope(shield=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(database._serve, serving, connections)
            try:
                yield database
            finally:
                with anyio.CancelScope(shield=True):
                    await database.close()
                serving.cancel()

    async def _serve(self, scope: anyio.CancelScope, connections: int) -> None:
        readers = max(1, connections // 3)
        with scope:
            async with anyio.create_task_group() as tasks:
                for _ in range(max(1, connections - readers)):
                    tasks.start_soon(self._writes.serve)
                for _ in range(readers):
                    tasks.start_soon(self._reads.serve)

    @property
    def failure(self) -> Unavailable | None:
        return closed() if self._is_closed else None

    @property
    def trouble(self) -> Unavailable | None:
        if self._damage is not None and time.monotonic() < self._damaged_until:
            return self._damage
        return self._trouble

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
        """Commits the waiting units; the connections close with the context."""
        self._is_closed = True
        with anyio.move_on_after(2 * self._wait_seconds):
            await self._writes.wait_idle()
            await self._reads.wait_idle()

    def _job(
        self, body: Callable[..., Coroutine[Any, Any, Any]], arguments: tuple[Any, ...], sessions: tuple[Named, ...]
    ) -> LaneJob:
        if self._is_closed:
            raise closed()
        return LaneJob(body, arguments, sessions, self._loop.create_future(), self._moments.draw(), time.monotonic())

    def _known(self, session: Named) -> Named:
        if isinstance(session, int) or session.key is None:
            return session
        return self._rows.get(session.key.value, session)

    async def _read(self, link: Link, batch: list[LaneJob]) -> None:
        for job in batch:
            while True:
                try:
                    _, cursor = await link.open()
                    job.result = await self._query(link, cursor, job)
                    break
                except psycopg.Error as error:
                    await link.reset()
                    if not is_lost(error):
                        raise self._judge(error) from error
                    await self._wait_for_server(job, error)

    def _judge(self, error: psycopg.Error) -> Exception:
        """The error for the waiter; remembers what `trouble` tells."""
        cause = translate(error)
        if isinstance(cause, Unavailable):
            self._storing.failed(cause)
            if cause.code == "store_corrupt":
                self._damage, self._damaged_until = cause, time.monotonic() + DAMAGE_SECONDS
            else:
                self._trouble = cause
        return cause

    async def _query(self, link: Link, cursor: AsyncRawCursor[Row], job: LaneJob) -> Any:
        if job.body not in self._snapshots:
            try:
                return await job.body(PostgresQuery(cursor, job.moment, is_alone=True), *job.arguments)
            except NeedsSnapshot:
                self._snapshots.add(job.body)
        await cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            job.result = await job.body(PostgresQuery(cursor, job.moment, is_alone=False), *job.arguments)
            job.settle()
        finally:
            await link.reset()
        return job.result

    async def _write(self, link: Link, batch: list[LaneJob]) -> None:
        """Runs the units in one transaction and settles them; retries while that can help."""
        reruns = 0
        is_careful = False
        while True:
            xid = ""
            effects = Effects()
            try:
                connection, cursor = await link.open()
                tx = PostgresTransaction(connection, cursor, batch[0].moment, self._defer)
                xid = await self._begin(cursor, batch[0].sessions)
                if not await self._run_units(tx, cursor, batch, is_careful=is_careful, reruns=reruns):
                    is_careful = True
                    await link.reset()
                    continue
                effects = tx.effects
                await self._commit(cursor, batch)
            except OutcomeUnknown:
                life = link.life
                await link.close()
                if not await self._has_committed(link, xid, life, batch[0]):
                    continue
            except psycopg.Error as error:
                await link.reset()
                if is_beaten(error, reruns):
                    reruns += 1
                    if reruns > MAX_RERUNS:
                        raise Unavailable("Store is busy. Try again.", code="store_busy") from error
                    # An immediate retry could take the locks before the other transaction wakes, and so on for both.
                    await asyncio.sleep(random.uniform(0.5, 1) * RETRY_SECONDS * reruns)
                elif is_lost(error):
                    await self._wait_for_server(batch[0], error)
                else:
                    raise self._judge(error) from error
                continue
            except BaseException:
                await link.reset()
                raise
            break
        if self._trouble is not None:
            await self._look_for_room(link)
        if effects:
            self._on_commit(effects.woken, effects.dispatched, effects.interrupted)

    async def _look_for_room(self, link: Link) -> None:
        """Ends the trouble if something can be stored; the unit that was committed may have written nothing."""
        try:
            _, cursor = await link.open()
            await cursor.execute("; ".join(("BEGIN", *PROBE, "COMMIT")).encode(), prepare=False)
        except psycopg.Error:
            await link.reset()
            return
        self._trouble = None
        self._storing.worked()

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
        """Locks the rows of sessions that were named by key or id; for a key without a row, locks its creation."""
        targets = [session for session in sessions if not isinstance(session, int)]
        keys = sorted({target.key.value for target in targets if target.key is not None})
        session_ids = sorted({str(target.session_id) for target in targets if target.session_id is not None})
        statement = (
            "SELECT id, key FROM sessions WHERE id = ANY($1) OR key = ANY($2) "
            f"OR id IN (SELECT session FROM incarnations WHERE id = ANY($3)) ORDER BY id {_LOCK}"
        )
        await cursor.execute(statement, (ids, keys, session_ids))
        found = await cursor.fetchall()
        missing = set(keys).difference(key for _, key in found)
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
        self,
        tx: PostgresTransaction,
        cursor: AsyncRawCursor[Row],
        batch: list[LaneJob],
        *,
        is_careful: bool,
        reruns: int,
    ) -> bool:
        """Runs each unit; False if one raised and all must run again, each behind a savepoint."""
        for job in batch:
            job.error = None
            before = tx.effects.copy() if is_careful else None
            if is_careful:
                await cursor.execute("SAVEPOINT unit")
            tx.begin_unit(job.moment)
            is_undone = False
            try:
                await _run_unit(tx, job)
            except psycopg.Error as error:
                concerns_all = is_lost(error) or is_beaten(error, reruns)
                if not is_careful or concerns_all:
                    if len(batch) == 1 or concerns_all:
                        raise
                    return False
                job.error = self._judge(error)
                is_undone = True
            except Exception as error:
                if not is_careful:
                    if len(batch) > 1 or tx.kept:
                        return False
                    raise
                job.error = error
                is_undone = True
            if before is not None:
                if is_undone:
                    tx.effects = before
                    tx.forget()
                    await cursor.execute("ROLLBACK TO SAVEPOINT unit")
                    if isinstance(job.error, AntiphonError):
                        await tx.store_kept()
                        await tx.flush()
                await cursor.execute("RELEASE SAVEPOINT unit")
        return True

    async def _commit(self, cursor: AsyncRawCursor[Row], batch: list[LaneJob]) -> None:
        number, names = 0, list[str]()
        if self._commit_hook is not None:
            number, names = next(self._commits), [job.body.__name__ for job in batch]
            self._commit_hook(number, "before", names)
        began_at = time.monotonic()
        try:
            await cursor.execute("COMMIT")
        except psycopg.Error as error:
            if is_lost(error):
                raise OutcomeUnknown from error
            raise
        COMMIT_SECONDS.observe(time.monotonic() - began_at)
        UNITS.add(len(batch))
        if self._commit_hook is not None:
            self._commit_hook(number, "after", names)

    async def _has_committed(self, link: Link, xid: str, life: str, job: LaneJob) -> bool:
        """Asks the server for the outcome of a transaction whose COMMIT was not answered.

        A server that crashed reuses the numbers of lost transactions. After a crash, only the answer that there was no
        commit can be trusted.
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
                if not is_lost(error):
                    raise
                try:
                    await self._wait_for_server(job, error)
                except Unavailable as unavailable:
                    raise outcome_unknown() from unavailable
                continue
            status = None if row is None else row[0]
            if status == "aborted" or (status == "in progress" and link.life != life):
                return False
            if status == "committed" and link.life == life:
                return True
            if status == "in progress":
                await asyncio.sleep(RETRY_SECONDS)
                continue
            raise outcome_unknown()

    async def _wait_for_server(self, job: LaneJob, error: psycopg.Error) -> None:
        """Waits briefly for a lost server to return. Raises `Unavailable` after the job's deadline."""
        if time.monotonic() - job.since >= self._wait_seconds:
            raise Unavailable(
                "Database cannot be reached: nothing was stored. Try again in a moment.", code="store_unreachable"
            ) from error
        await asyncio.sleep(RETRY_SECONDS)


async def _run_unit(tx: PostgresTransaction, job: LaneJob) -> None:
    """Notes what a unit returns, or raises before it has written; what it raises afterwards goes on."""
    try:
        job.result = await job.body(tx, *job.arguments)
    except AntiphonError as error:
        if tx.has_sent:
            raise
        tx.forget()
        await tx.store_kept()
        job.error = error
    await tx.flush()
