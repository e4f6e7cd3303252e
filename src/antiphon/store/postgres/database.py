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

from antiphon.domain.errors import AntiphonError, Unavailable
from antiphon.domain.ids import SessionRow
from antiphon.metrics import COMMIT_SECONDS, UNITS
from antiphon.server_url import replica_of
from antiphon.store.database import READS_MUCH, CommitHook, Named, NeedsSessions, OnCommit, Query, Row, Transaction
from antiphon.store.effects import Effects
from antiphon.store.migrations import PROBE
from antiphon.store.moments import Moments
from antiphon.store.postgres.errors import (
    OutcomeUnknown,
    closed,
    is_beaten,
    is_locked_out,
    is_lost,
    locked,
    outcome_unknown,
    translate,
    unreachable,
)
from antiphon.store.postgres.lane import Lane, LaneJob
from antiphon.store.postgres.link import LOCK_SECONDS, Link, application_name
from antiphon.store.postgres.pipeline import BoundStatement, Pipeline
from antiphon.store.postgres.replica import Replica, read_position
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

_SNAPSHOT = (BoundStatement(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),)

MAX_KNOWN_KEYS = 65_536

DAMAGE_SECONDS = 60.0
"""How long damage that was seen counts: the server may be repaired while this process runs."""


_OLDEST_HOLDER = """
SELECT a.pid, a.application_name, extract(epoch FROM now() - a.xact_start)::int FROM pg_stat_activity a
WHERE a.pid <> pg_backend_pid() AND a.datname = current_database() AND a.xact_start IS NOT NULL
AND EXISTS (SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
  WHERE l.pid = a.pid AND l.granted AND l.mode <> 'AccessShareLock' AND c.relkind = 'r')
ORDER BY a.wait_event_type IS NOT DISTINCT FROM 'Lock', a.xact_start LIMIT 1
"""


_END = """
SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE application_name = ? AND datname = current_database() AND usename = current_user AND xact_start IS NOT NULL
"""


class _Again(Exception):
    """The units must run again, each behind a savepoint if `is_careful`."""

    def __init__(self, *, is_careful: bool) -> None:
        self.is_careful = is_careful


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
        replica: Replica | None,
    ) -> None:
        self._url = url
        self._replica = replica
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
        self._lock: Unavailable | None = None
        self._locked_until = 0.0
        self._locks = Trouble(
            logger,
            "Waiting for a lock",
            action="lock_awaited",
            means="Units that need it wait, and fail after a while.",
        )
        self._writes = Lane(url, self._write, wait_seconds)
        self._reads = Lane(url, self._read, wait_seconds)
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
            replica=None if (standby := replica_of(url)) is None else Replica(standby, _readers(connections)),
        )
        serving = anyio.CancelScope(shield=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(database._serve, serving, connections)
            try:
                yield database
            finally:
                with anyio.CancelScope(shield=True):
                    await database.close()
                    if database._replica is not None:
                        await database._replica.close()
                serving.cancel()

    async def _serve(self, scope: anyio.CancelScope, connections: int) -> None:
        readers = _readers(connections)
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
        return self._trouble or (self._lock if time.monotonic() < self._locked_until else None)

    async def run(
        self,
        unit: Callable[[Transaction, *Ts], Coroutine[Any, Any, R]],
        *arguments: *Ts,
        sessions: Sequence[Named] = (),
    ) -> R:
        job = self._job(unit, arguments, tuple(self._known(session) for session in sessions))
        self._writes.put(job, job.sessions[0] if job.sessions else None)
        return await job.future

    async def read(self, query: Callable[[Query, *Ts], Coroutine[Any, Any, R]], *arguments: *Ts) -> R:
        job = self._job(query, arguments, ())
        if self._replica is not None and query in READS_MUCH and not self._replica.rests:
            position = await self.read(read_position)
            if await self._replica.answer(job, position, self._query):
                return job.result
        self._reads.put(job, None)
        return await job.future

    async def end_transactions(self, pid: int, host: str) -> int:
        """Ends the connections of a process that are within a transaction, as far as they are this user's.

        The server ends an idle one itself, but not one that writes an answer which nobody reads.
        """
        row = await self.read(_end, application_name(pid, host))
        return 0 if row is None else row[0]

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
            has_waited = False
            while True:
                try:
                    job.result = await self._query(link, await link.open(), job)
                    if has_waited:
                        self._end_wait()
                    break
                except psycopg.Error as error:
                    await link.reset()
                    if is_locked_out(error):
                        has_waited = True
                        await self._wait_for_lock(link, job, error)
                    elif is_lost(error):
                        await self._wait_for_server(link, job, error)
                    else:
                        raise self._judge(error) from error

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

    async def _query(self, link: Link, pipeline: Pipeline, job: LaneJob) -> Any:
        if job.body not in self._snapshots:
            try:
                return await job.body(PostgresQuery(pipeline, job.moment, snapshot=None), *job.arguments)
            except NeedsSnapshot:
                self._snapshots.add(job.body)
        try:
            job.result = await job.body(PostgresQuery(pipeline, job.moment, snapshot=_SNAPSHOT), *job.arguments)
            job.settle()
        finally:
            await link.reset()
        return job.result

    async def _write(self, link: Link, batch: list[LaneJob]) -> None:
        """Runs the units in one transaction; retries while that can help. Takes out of the batch what is to wait."""
        reruns = 0
        is_careful = has_waited = False
        while True:
            effects = Effects()
            try:
                pipeline = await link.open()
                tx = await self._begin(pipeline, batch)
                await self._run_units(tx, batch, is_careful=is_careful, reruns=reruns)
                effects = tx.effects
                await self._commit(tx, batch)
            except _Again as again:
                is_careful = again.is_careful
                await link.reset()
                continue
            except OutcomeUnknown as unknown:
                life = link.life
                await link.close()
                if not await self._has_committed(link, unknown.xid, life, batch[0]):
                    continue
            except psycopg.Error as error:
                await link.reset()
                if len(batch) > 1 and not is_careful and not _concerns_all(error, reruns):
                    is_careful = True  # one of the writes that waited for the COMMIT was refused
                elif is_beaten(error, reruns):
                    reruns += 1
                    if reruns > MAX_RERUNS:
                        raise Unavailable("Store is busy. Try again.", code="store_busy") from error
                    # An immediate retry could take the locks before the other transaction wakes, and so on for both.
                    await asyncio.sleep(random.uniform(0.5, 1) * RETRY_SECONDS * reruns)
                elif is_locked_out(error):
                    has_waited = True
                    await self._wait_for_lock(link, batch[0], error)
                elif is_lost(error):
                    await self._wait_for_server(link, batch[0], error)
                else:
                    raise self._judge(error) from error
                continue
            except BaseException:
                await link.reset()
                raise
            break
        if has_waited:
            self._end_wait()
        if self._trouble is not None:
            await self._look_for_room(link)
        if effects:
            self._on_commit(effects.woken, effects.dispatched, effects.interrupted)

    async def _look_for_room(self, link: Link) -> None:
        """Ends the trouble if something can be stored; the unit that was committed may have written nothing."""
        try:
            pipeline = await link.open()
            await pipeline.trip([BoundStatement(each.encode(), is_kept=False) for each in ("BEGIN", *PROBE, "COMMIT")])
        except psycopg.Error:
            await link.reset()
            return
        self._trouble = None
        self._storing.worked()

    async def _begin(self, pipeline: Pipeline, batch: Sequence[LaneJob]) -> PostgresTransaction:
        """A transaction that locks the rows of the batch's sessions in their order before it does anything else."""
        tx = PostgresTransaction(pipeline, batch[0].moment, self._defer)
        sessions = {named: None for job in batch for named in job.sessions}
        ids = [session for session in sessions if isinstance(session, int)]
        if len(ids) == len(sessions):
            tx.lock(ids)
            return tx
        targets = [session for session in sessions if not isinstance(session, int)]
        keys = {target.key.value for target in targets if target.key is not None}
        incarnations = {str(target.session_id) for target in targets if target.session_id is not None}
        for id, key in await tx.lock_named(ids, keys, incarnations):
            self._rows[key] = id
        while len(self._rows) > MAX_KNOWN_KEYS:
            self._rows.popitem(last=False)
        return tx

    async def _run_units(
        self,
        tx: PostgresTransaction,
        batch: list[LaneJob],
        *,
        is_careful: bool,
        reruns: int,
    ) -> None:
        """Runs each unit. Raises `_Again` if all must run again: one raised, or needs more sessions.

        A unit that needs more sessions leaves the batch, and those behind it wait for it.
        """
        if is_careful:
            await tx.send()  # an error of the locks is no unit's
        for at, job in enumerate(batch):
            job.error = None
            if is_careful:
                tx.put("SAVEPOINT unit")
            tx.begin_unit(job.moment)
            is_undone = False
            try:
                await _run_unit(tx, job)
                if is_careful:
                    await tx.send()
            except NeedsSessions as needs:
                job.widen(needs.sessions)
                del batch[max(1, at) :]
                if at == 0 or (tx.has_sent and not is_careful):
                    raise _Again(is_careful=is_careful) from needs
                is_undone = True
            except psycopg.Error as error:
                if not is_careful or _concerns_all(error, reruns):
                    raise
                job.error = self._judge(error)
                is_undone = True
            except Exception as error:
                if not is_careful:
                    if len(batch) > 1 or tx.kept:
                        raise _Again(is_careful=True) from error
                    raise
                job.error = error
                is_undone = True
            if is_undone:
                tx.forget()
            if is_careful:
                if is_undone:
                    tx.put("ROLLBACK TO SAVEPOINT unit")
                    if isinstance(job.error, AntiphonError):
                        await self._store_kept(tx, job, reruns)
                tx.put("RELEASE SAVEPOINT unit")
                await tx.send()

    async def _store_kept(self, tx: PostgresTransaction, job: LaneJob, reruns: int) -> None:
        """Stores what the undone unit keeps, if the server takes it; what it refuses takes nobody else along."""
        try:
            await tx.store_kept()
            await tx.send()
        except psycopg.Error as error:
            if _concerns_all(error, reruns):
                raise
            job.error = self._judge(error)
            tx.forget()
            tx.put("ROLLBACK TO SAVEPOINT unit")

    async def _commit(self, tx: PostgresTransaction, batch: list[LaneJob]) -> None:
        """Sends what waits, and COMMIT; the transaction's number is known by then."""
        number, names = 0, list[str]()
        if self._commit_hook is not None:
            number, names = next(self._commits), [job.body.__name__ for job in batch]
            self._commit_hook(number, "before", names)
        began_at = time.monotonic()
        if tx.xid is None:
            await tx.send()
        assert tx.xid is not None
        tx.put("COMMIT")
        try:
            await tx.send()
        except psycopg.Error as error:
            if is_lost(error):
                raise OutcomeUnknown(tx.xid) from error
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
                pipeline = await link.open()
                status = (await pipeline.fetch(b"SELECT pg_xact_status($1::xid8)", (xid,)))[0][0]
            except psycopg.errors.InvalidParameterValue:
                await link.reset()
                return False  # a number that the server has not given yet
            except psycopg.Error as error:
                await link.close()
                if not is_lost(error):
                    raise
                try:
                    await self._wait_for_server(link, job, error)
                except Unavailable as unavailable:
                    raise outcome_unknown() from unavailable
                continue
            if status == "aborted" or (status == "in progress" and link.life != life):
                return False
            if status == "committed" and link.life == life:
                return True
            if status == "in progress":
                await asyncio.sleep(RETRY_SECONDS)
                continue
            raise outcome_unknown()

    async def _wait_for_server(self, link: Link, job: LaneJob, error: psycopg.Error) -> None:
        """Waits briefly for a lost server to return, or another one. Raises `Unavailable` after the job's deadline.

        A standby answers, and reads: a process that only looks whether it answers would not know.
        """
        await link.close()
        cause = unreachable(error)
        if cause.code == "store_read_only":
            self._trouble = cause
            self._storing.failed(cause)
        if time.monotonic() - job.since >= self._wait_seconds:
            job.lacking = cause
            raise cause from error
        await asyncio.sleep(RETRY_SECONDS)

    async def _wait_for_lock(self, link: Link, job: LaneJob, error: psycopg.Error) -> None:
        """Says who holds the lock, once. Raises `Unavailable` after the job's deadline."""
        cause = locked(await self._find_holder(link))
        self._lock, self._locked_until = cause, time.monotonic() + 2 * LOCK_SECONDS
        self._locks.failed(cause)
        if time.monotonic() - job.since >= self._wait_seconds:
            job.lacking = cause
            raise cause from error

    def _end_wait(self) -> None:
        self._lock = None
        self._locks.worked()

    async def _find_holder(self, link: Link) -> str | None:
        """The connection that has had a transaction with locks on our tables for the longest time."""
        try:
            pipeline = await link.open()
            row = next(iter(await pipeline.fetch(_OLDEST_HOLDER.encode())), None)
        except psycopg.Error:
            await link.reset()
            return None
        return None if row is None else f"process {row[0]} of the server ({row[1]!r}, for {row[2]} s)"


def _readers(connections: int) -> int:
    return max(1, connections // 3)


async def _end(query: Query, name: str) -> Row | None:
    return await query.fetch_one(_END, (name,))


def _concerns_all(error: psycopg.Error, reruns: int) -> bool:
    """Whether the error is not that of a single unit."""
    return is_lost(error) or is_locked_out(error) or is_beaten(error, reruns)


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
