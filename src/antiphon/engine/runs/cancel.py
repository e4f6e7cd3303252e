"""Reading runs, and cancelling them with everything below them. Contract: runs 5."""

from typing import NamedTuple

from msgspec.structs import replace

from antiphon.domain.actor import Principal, channel_of
from antiphon.domain.errors import Denied, NotFound
from antiphon.domain.ids import RunId
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.session import Session
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.reach import NOBODY, Rights, admit_head, find_reach, find_session
from antiphon.engine.approvals.answering import withdraw_all
from antiphon.engine.ledger.fence import sessions_of
from antiphon.engine.rules import Rules
from antiphon.engine.runs.ends import CANCELLED_AWAITING, CANCELLED_EARLY, call_off, end_parked_run, end_queued_run
from antiphon.policy.acts import Act
from antiphon.policy.flow import is_public
from antiphon.policy.reach import Grant
from antiphon.policy.rights import is_guest
from antiphon.policy.shown import shown_run
from antiphon.policy.standing import Standing
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store import spawns
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import find_standing
from antiphon.store.runs import RunFilter


class Cancelled(NamedTuple):
    """The runs of a session that are being cancelled."""

    run_id: RunId | None
    """The session's own run; None if it had none."""
    below: int
    """The number of its descendants' runs."""


class Runs:
    """What people and programs can do with runs."""

    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def get(self, principal: Principal, run_id: RunId) -> Run:
        """The run in the ledger. Raises `NotFound`, also if the principal may not see its session."""
        return (await self._database.read(_find_run, self._rights(principal), Act.READ, run_id)).shown

    async def shown(self, principal: Principal, run: Run) -> Run:
        """The ended run as the principal may see it now. Reads nothing if everybody may. Raises like `get`."""
        if is_public(run.made_of):
            return run
        found = await self._database.read(_find_run, self._rights(principal), Act.READ, run.id)
        return shown_run(run, found.grant.clearance)

    async def list(self, principal: Principal, where: RunFilter, *, limit: int) -> list[Run]:
        """Newest first. Raises `Denied` for anyone but the owner."""
        return await self._database.read(_list_runs, self._rights(principal), where, limit)

    async def cancel(self, principal: Principal, run_id: RunId) -> Run:
        """Cancels the run: at once if it is queued, else as soon as its work has stopped. Idempotent.

        Contract: runs 5.
        """
        run = await self.get(principal, run_id)
        return await self._database.run(cancel_run, self._rights(principal), run_id, sessions=sessions_of(run))

    async def cancel_session(self, principal: Principal, target: NamedTarget) -> Cancelled:
        """Cancels the work of the session and of everything below it. Raises `NotFound`. Contract: runs 5, spawn 8."""
        return await self._database.run(cancel_session, self._rights(principal), target, sessions=(target,))

    def _rights(self, principal: Principal) -> Rights:
        return Rights(principal, self._rules)


class _FoundRun(NamedTuple):
    run: Run
    grant: Grant
    """For its session."""

    @property
    def shown(self) -> Run:
        return shown_run(self.run, self.grant.clearance)


async def _find_run(query: Query, rights: Rights, act: Act, run_id: RunId) -> _FoundRun:
    """The run, if its session is within reach; a missing run costs the same statements."""
    reach = await find_reach(query, rights, act)
    run = await ledger.find_shown(query, run_id)
    found = await admit_head(query, reach, await rows.find_head(query, run.session if run else NOBODY))
    if run is None or found is None:
        raise NotFound(f"Run not found: {run_id!r}")
    return _FoundRun(run, found.grant)


async def _list_runs(query: Query, rights: Rights, where: RunFilter, limit: int) -> list[Run]:
    reach = await find_reach(query, rights, Act.LIST_RUNS)
    return await ledger.list_page(query, reach, where, limit=limit)


async def cancel_session(tx: Transaction, rights: Rights, target: NamedTarget) -> Cancelled:
    found = await find_session(tx, rights, Act.CHANGE, target)
    standing = await find_standing(tx, rights.principal)
    if _is_bounded(standing):
        return await _cancel_own(tx, found.session, standing)
    return await cancel_work(tx, found.session)


async def _cancel_own(tx: Transaction, session: Session, standing: Standing) -> Cancelled:
    """Cancels what the guest asked for in the session, with all below it; the work of others goes on."""
    active = await ledger.find_active(tx, session.row)
    begun = [*([] if active is None else [active]), *await ledger.find_parked(tx, session.row)]
    own = [run for run in begun if await _is_asked_by(tx, run, standing)]
    if not own:
        queued = await ledger.find_queued(tx, session.row)
        own = [run for run in queued if await _is_asked_by(tx, run, standing)][:1]
    if begun and not own:
        raise _not_theirs()
    for run in own:
        await _end(tx, run)
    return Cancelled(own[0].id if own else None, 0)


def _is_bounded(standing: Standing) -> bool:
    """Whether the principal stops only what it asked for: a guest, unlike the program of a channel."""
    return is_guest(standing) and channel_of(standing.principal) is None


async def _is_asked_by(query: Query, run: Run, standing: Standing) -> bool:
    """Whether the run is the person's, or that of somebody who was merged into them."""
    return (await find_standing(query, run.principal)).principal == standing.principal


def _not_theirs() -> Denied:
    return Denied("Guests stop only what they asked for. Its asker or an owner can stop this.", code="not_asker")


async def cancel_run(tx: Transaction, rights: Rights, run_id: RunId) -> Run:
    found = await _find_run(tx, rights, Act.CHANGE, run_id)
    run, standing = found.run, await find_standing(tx, rights.principal)
    if _is_bounded(standing) and not await _is_asked_by(tx, run, standing):
        raise _not_theirs()
    while run.continued_by is not None:
        last = await ledger.find(tx, run.continued_by)
        assert last is not None
        run = last
    await _end(tx, run)
    current = (await ledger.find_ends(tx, [run_id])).get(run_id)
    assert current is not None
    return shown_run(replace(current, made_of=current.made_of.join(found.run.made_of)), found.grant.clearance)


async def _end(tx: Transaction, run: Run) -> None:
    if run.is_parked:
        await ledger.change(tx, run.id, {"cancel_requested": 1})
        await end_parked_run(tx, run.id)
    elif run.status is RunStatus.QUEUED:
        await end_queued_run(tx, run, CANCELLED_EARLY)
    elif not run.status.is_terminal:
        await call_off(tx, run, CANCELLED_AWAITING)


async def cancel_work(tx: Transaction, session: Session) -> Cancelled:
    """Cancels the work of a session that was already found, and of everything below it.

    If nothing has begun in a session yet, its work is the run that would begin next. The session's open requests of
    calls from outside a run are withdrawn.
    """
    found = await ledger.find_active(tx, session.row)
    parked = await ledger.find_parked(tx, session.row)
    queued = await ledger.find_queued(tx, session.row)
    ended = [run for run in queued if run.report is not None or run.continues is not None]
    if found is None and not parked and not ended:
        ended = queued[:1]
    called_off = await spawns.cancel_tree(tx, session.row, session.depth)
    for child in called_off.at_work:
        tx.interrupt(child)
    if found is not None:
        await call_off(tx, found, CANCELLED_AWAITING)
    for run in parked:
        await ledger.change(tx, run.id, {"cancel_requested": 1})
        await end_parked_run(tx, run.id)
    for run in ended:
        await end_queued_run(tx, run, CANCELLED_EARLY)
    await withdraw_all(tx, session.row)
    own = [*((found,) if found else ()), *parked, *ended]
    return Cancelled(own[0].id if own else None, called_off.runs)
