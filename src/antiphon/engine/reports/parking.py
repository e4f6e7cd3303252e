"""Parked runs, and the run that continues each of them. Contract: spawn 8, approvals 2."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from antiphon.domain.classification import Classification
from antiphon.domain.ids import RunId, SessionId
from antiphon.domain.report import Report, ReportState
from antiphon.domain.run import Outcome, Run, RunStatus
from antiphon.domain.session import DeliveryContext, Session
from antiphon.engine.deliveries import outbox
from antiphon.engine.ledger.append import NewMessage, derived_id
from antiphon.engine.ledger.queue import queue_run
from antiphon.engine.reports import messages
from antiphon.store import runs as ledger
from antiphon.store import spawns
from antiphon.store.codec import milliseconds, moment
from antiphon.store.database import Transaction
from antiphon.store.runs import NewRun


class CancelledContinuation(NamedTuple):
    """A queued run to end at once, because the work that it would continue was cancelled."""

    run: Run
    outcome: Outcome
    made_of: Classification
    """What the outcome was made of: it repeats the reply of the work that was cancelled."""


class Continued(Struct, frozen=True):
    """The parked run has been continued or ended."""

    called_off: CancelledContinuation | None = None
    """The continuation, if it is to end at once."""
    released: Sequence[Report] = ()
    """Results that others began and the run waited for; they have their own consequences again."""


async def must_park(
    tx: Transaction, run: Run, status: RunStatus, *, delivery: DeliveryContext, owed: Report | None
) -> bool:
    """Whether the run, ending now, waits for children: it yielded, or it owes a result that needs theirs.

    `delivery` is the place of its session's answers. A child in a thread of its own answers there, so only a yield
    waits for it. Contract: spawn 4.
    """
    if status not in (RunStatus.OK, RunStatus.ERROR) or run.is_cancel_requested:
        return False
    is_asked = run.is_yielding and status is RunStatus.OK
    if not is_asked and (owed is None or not run.has_spawned):
        return False
    place = outbox.answers_to(run, delivery)
    children = await spawns.list_open(tx, run, place, with_threads=is_asked)
    # A run that yielded continues, also with results that a wait in the same step took.
    come = await spawns.list_recorded(tx, run.id, with_threads=is_asked)
    has_come = any(is_asked or not report.is_taken for report in come)
    return has_come or any(is_asked or report.origin_run == run.id for report in children)


async def continue_run(tx: Transaction, parked: Run, session: Session, answers: Sequence[str]) -> Continued:
    """Continues with results that are already in the session's log, or ends the work that waited for them."""
    end = why_not(parked, session, tx.now_ms)
    words = await messages.notice_words(
        tx,
        session,
        continuation_of(parked),
        () if end is not None else tuple(answers),
        incarnation=SessionId(parked.session_id),
        is_continued=end is None,
        why_not=None if end is None else end.error,
    )
    return await go_on(tx, parked, session, words, end=end)


async def go_on(tx: Transaction, parked: Run, session: Session, words: NewMessage, *, end: Outcome | None) -> Continued:
    """Queues the run that continues the parked one, with its report, its request, its rights and the time it has left.

    If `end` is given, the continuation ends at once with it.
    """
    run_id = continuation_of(parked)
    came = [report for report in await spawns.list_awaited(tx, parked.id) if report.stage is not ReportState.OPEN]
    continuation = NewRun(
        id=run_id,
        purpose=parked.purpose,
        incarnation=SessionId(parked.session_id),
        agent_id=session.agent_id,
        principal=parked.principal,
        place=parked.place,
        partner=parked.partner,
        exchange=parked.exchange,
        chain=parked.chain,
        hops=parked.hops,
        is_sandboxed=parked.is_sandboxed or any(report.is_sandboxed for report in came),
        task=parked.task,
        report=parked.report,
        announces=parked.announces,
        continues=parked.id,
        cause=parked.id,
        has_spawned=parked.has_spawned or not parked.is_awaiting_approval,
        deadline=parked.deadline,
        time_limit=parked.time_limit,
        approval=parked.approval,
    )
    await queue_run(tx, session, words, continuation)
    await ledger.change(tx, parked.id, {"is_parked": 0, "continued_by": run_id})
    await spawns.move_origin(tx, parked.id, run_id)
    await spawns.delete_awaited(tx, parked.id, tx.now_ms)
    if parked.report is not None:
        await spawns.set_run(tx, parked.report, run_id)
    if end is None:
        return Continued()
    run = await ledger.find(tx, run_id)
    assert run is not None
    awaited = await spawns.list_awaited(tx, parked.id)
    others = [report for report in awaited if report.origin_run not in (None, parked.id, run_id)]
    return Continued(CancelledContinuation(run, end, parked.made_of), others)


def why_not(parked: Run, session: Session, at_ms: int) -> Outcome | None:
    """How the work ends instead of continuing; None if it continues."""
    if session.id != parked.session_id:
        return Outcome(status=RunStatus.CANCELLED, error="The session was reset.", code="reset")
    if parked.is_cancel_requested:
        return Outcome(
            status=RunStatus.CANCELLED, reply=parked.reply or "", error="The run was cancelled.", code="cancelled"
        )
    if parked.deadline is not None and parked.deadline <= moment(at_ms):
        return Outcome(
            status=RunStatus.TIMEOUT,
            reply=parked.reply or "",
            error="The run exceeded its time limit.",
            code="run_timeout",
        )
    return None


def continuation_of(parked: Run) -> RunId:
    """The id of the run that continues the parked one; always the same."""
    ended_ms = milliseconds(parked.ended_at or parked.created_at)
    return RunId(derived_id("run", ended_ms, parked.id, "continued"))
