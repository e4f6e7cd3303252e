"""What people and programs ask of runs: to see them, and to cancel them with all below. Contract: runs 5."""

from typing import NamedTuple

from antiphon.clock import Clock
from antiphon.domain.actor import Principal
from antiphon.domain.errors import NotFound
from antiphon.domain.ids import RunId, SessionRow
from antiphon.domain.run import Run, RunStatus
from antiphon.engine.access.lookup import may_access
from antiphon.engine.ledger.fence import sessions_of
from antiphon.engine.refusal import Refusal, accepted
from antiphon.engine.runs.lifecycle import CANCELLED_EARLY, call_off, end_parked_run, end_queued_run
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store import spawns
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.runs import RunFilter


class Cancelled(NamedTuple):
    """What was at work in a session and is being cancelled."""

    run_id: RunId | None
    """Of the session itself; None if it had none."""
    below: int
    """Runs of its descendants."""


class Runs:
    """What people and programs ask of runs."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def get(self, principal: Principal, run_id: RunId) -> Run:
        """The run as the ledger has it. Raises `NotFound`, also for a session that may not be seen."""
        return accepted(await self._database.read(_find_run, principal, run_id))

    async def list(self, where: RunFilter, *, limit: int) -> list[Run]:
        """The owner's list, newest first."""
        return await self._database.read(_list_runs, where, limit)

    async def cancel(self, principal: Principal, run_id: RunId) -> Run:
        """Cancels the run: at once if it is queued, else as soon as its work has unwound. Idempotent.

        Contract: runs 5.
        """
        run = await self.get(principal, run_id)
        at_ms = self._clock.now_ms()
        return accepted(await self._database.run(cancel_run, principal, run_id, at_ms, sessions=sessions_of(run)))

    async def cancel_session(self, session: SessionRow) -> Cancelled:
        """Cancels what the session and all below it are at work on."""
        return await self._database.run(cancel_work, session, self._clock.now_ms(), sessions=(session,))


async def _find_run(query: Query, principal: Principal, run_id: RunId) -> Run | Refusal:
    run = await ledger.find(query, run_id)
    session = await rows.find_head(query, run.session) if run else None
    if run is None or session is None or not await may_access(query, principal, session.row):
        return Refusal(NotFound(f"Run not found: {run_id!r}"))
    return run


async def _list_runs(query: Query, where: RunFilter, limit: int) -> list[Run]:
    return await ledger.list_page(query, where, limit=limit)


async def cancel_run(tx: Transaction, principal: Principal, run_id: RunId, at_ms: int) -> Run | Refusal:
    run = await _find_run(tx, principal, run_id)
    if isinstance(run, Refusal):
        return run
    while run.continued_by is not None:
        last = await ledger.find(tx, run.continued_by)
        assert last is not None
        run = last
    if run.is_parked:
        await ledger.change(tx, run.id, {"cancel_requested": 1})
        await end_parked_run(tx, run.id, at_ms)
    elif run.status is RunStatus.QUEUED:
        await end_queued_run(tx, run, CANCELLED_EARLY, at_ms=at_ms)
    elif not run.status.is_terminal:
        await call_off(tx, run)
    current = (await ledger.find_ends(tx, [run_id])).get(run_id)
    assert current is not None
    return current


async def cancel_work(tx: Transaction, session: SessionRow, at_ms: int) -> Cancelled:
    """Cancels what the session and all below it are at work on. Contract: runs 5, spawn 8."""
    found = await ledger.find_active(tx, session)
    parked = await ledger.find_parked(tx, session)
    queued = await ledger.find_queued(tx, session)
    owing = [run for run in queued if run.report is not None or run.continues is not None]
    row = await rows.find_by_row(tx, session)
    below = 0
    if row is not None:
        called_off = await spawns.cancel_tree(tx, session, row.depth)
        below = called_off.runs
        for child in called_off.at_work:
            tx.interrupt(child)
    if found is not None:
        await call_off(tx, found)
    for run in parked:
        await ledger.change(tx, run.id, {"cancel_requested": 1})
        await end_parked_run(tx, run.id, at_ms)
    for run in owing:
        await end_queued_run(tx, run, CANCELLED_EARLY, at_ms=at_ms)
    own = [*((found,) if found else ()), *parked, *owing]
    return Cancelled(own[0].id if own else None, below)
