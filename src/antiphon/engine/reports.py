"""What follows when a child's run ends, and when the run that spawned it ends, each in the ending transaction.

The record enters the requester's log in the transaction that ends the child's work, so there is one and no second.
`domain/report` says what follows; here it is carried out. Contract: spawn 7, 8.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.ids import RunId, SessionId, SessionRow
from antiphon.domain.message import (
    Part,
    text_of,
)
from antiphon.domain.report import (
    Following,
    Report,
    Stage,
    announced_text,
    record_parts,
    what_follows,
)
from antiphon.domain.run import Outcome, QueueMode, Run, RunStatus
from antiphon.domain.session import DeliveryContext, Session
from antiphon.domain.spawn import Cleanup, Mode
from antiphon.engine import outbox, report_log
from antiphon.engine.arrivals import derived_id
from antiphon.engine.findings import find_result
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store import spawns
from antiphon.store.codec import milliseconds, moment, place_text
from antiphon.store.database import SqlValue, Transaction


class CalledOff(NamedTuple):
    """A queued run that is to end at once, since what it would go on with was called off."""

    run: Run
    outcome: Outcome


async def find_owed(tx: Transaction, run: Run, status: RunStatus, depth: int, at_ms: int) -> Report | None:
    """The result that the ending run owes; in a child that stays, each of its runs owes one.

    One that its requester did not ask for, and that is called off, has none to tell.
    """
    if run.report is not None:
        return await spawns.find_report(tx, run.report)
    if depth == 0 or run.exchange is not None or run.announces is not None or status is RunStatus.CANCELLED:
        return None
    spawn = await spawns.find(tx, run.session)
    if spawn is None or spawn.mode is not Mode.SESSION:
        return None
    first = await spawns.find_report(tx, spawn.run)
    newest = await spawns.find_newest_of_child(tx, run.session)
    if first is None or newest is None or newest.requester is None:
        return None
    requester = await rows.find_by_row(tx, newest.requester)
    if requester is None:
        return None
    is_of_now = run.created_at >= requester.started_at  # else its requester was reset meanwhile
    report = replace(
        first,
        id=run.id,
        run=run.id,
        requester=requester.row,
        requester_incarnation=SessionId(requester.id) if is_of_now else newest.requester_incarnation,
        waiter=None,
        principal=run.principal,
        is_sandboxed=first.is_sandboxed or run.is_sandboxed,
        stage=Stage.OPEN,
        is_taken=False,
    )
    await spawns.insert_report(tx, report, at_ms)
    await ledger.change(tx, run.id, {"report": report.id})
    return report


async def must_park(
    tx: Transaction, run: Run, delivery: DeliveryContext, status: RunStatus, owed: Report | None
) -> bool:
    """Whether the run, ending now, waits for children: it yielded, or it owes a result that theirs belong to.

    `delivery` is where answers of its session go.
    """
    if status not in (RunStatus.OK, RunStatus.ERROR) or run.is_cancel_requested:
        return False
    is_asked = run.is_yielding and status is RunStatus.OK
    if not is_asked and (owed is None or not run.has_spawned):
        return False
    children = await spawns.list_open(tx, run, outbox.answers_to(run, delivery))
    # Whoever yields goes on, also with what a wait of the same step took.
    has_come = any(is_asked or not report.is_taken for report in await spawns.list_recorded(tx, run.id))
    return has_come or any(is_asked or report.origin_run == run.id for report in children)


async def park(tx: Transaction, run: Run, at_ms: int) -> list[CalledOff]:
    """Lets the run, which has ended, wait for all children of its session; goes on at once if they have ended."""
    came = await spawns.list_recorded(tx, run.id)
    recorded = [report for report in came if not report.is_taken]
    session = await rows.find_by_row(tx, run.session)
    assert session is not None
    has_open = await spawns.wait_for_all(tx, run, outbox.answers_to(run, session.delivery))
    for report in came:
        if report.is_taken:
            await _settle(tx, report, at_ms)
    for report in recorded:
        await spawns.change_report(tx, report.id, {"waiter": run.id})
        await _settle(tx, replace(report, is_taken=True), at_ms, may_delete=False)
    if has_open:
        if run.deadline is not None:
            tx.wake(spawns.DUE)
        return []
    return await _continue(tx, run, session, [report.id for report in recorded], at_ms)


async def follow_end(tx: Transaction, run: Run, owed: Report | None, at_ms: int) -> list[CalledOff]:
    """What follows from a run that has ended and is not continued."""
    called_off: list[CalledOff] = []
    if owed is not None and owed.stage is Stage.OPEN:
        called_off += await _record(tx, owed, run, at_ms)
    if run.announces is not None:
        await _deliver_announcement(tx, run, run.announces, at_ms)
    if run.has_spawned:
        await _follow_children(tx, run, at_ms)
    return called_off


async def end_parked(tx: Transaction, run: Run, at_ms: int) -> list[CalledOff]:
    """Ends the work of a parked run without waiting any longer for its children."""
    session = await rows.find_by_row(tx, run.session)
    if session is None:
        return []
    return await _continue(tx, run, session, (), at_ms)


async def abandon_reports(tx: Transaction, session: Session, at_ms: int) -> list[CalledOff]:
    """A session is being deleted: what it still owes is told as failed, its children's results go to its requester.

    Contract: spawn 7, sessions 7.
    """
    reports = await spawns.list_of_child(tx, session.row)
    unanswered = await spawns.list_unanswered(tx, session.row)
    called_off: list[CalledOff] = []
    for run in await ledger.find_parked(tx, session.row):
        await ledger.change(tx, run.id, {"is_parked": 0})
    for report in reports:
        if report.stage is Stage.ANNOUNCING and report.requester is not None:
            requester = await rows.find_by_row(tx, report.requester)
            if requester is not None and requester.id == report.requester_incarnation:
                await _answer(tx, requester, [report], None, at_ms)
        if report.stage is not Stage.OPEN:
            continue
        run = await ledger.find(tx, report.run)
        if run is not None:
            gone = replace(run, status=RunStatus.ERROR, error="The session was deleted.", code="session_deleted")
            called_off += await _record(tx, report, gone, at_ms, may_announce=False)
    heir = await _find_heir(tx, reports)
    for report in unanswered:
        await spawns.reopen_for(tx, report.id, heir)
    for child in await spawns.leave_to(tx, session.row, heir):
        await _put_by(tx, child, at_ms, may_delete=False)
    for report in unanswered:
        inherited, run = await spawns.find_report(tx, report.id), await ledger.find(tx, report.run)
        if inherited is not None and run is not None:
            called_off += await _record(tx, inherited, run, at_ms)
    await spawns.delete_all(tx, session.row)
    return called_off


async def _find_heir(tx: Transaction, reports: Sequence[Report]) -> spawns.Heir:
    """Whom the session of these reports owed the newest, as it stands now that they were told."""
    newest = None if not reports else await spawns.find_report(tx, reports[-1].id)
    held: SessionRow | None = None
    while newest is not None and newest.requester is not None and newest.requester != held:
        # Its run may be about to be continued, and it may be about to be deleted itself.
        held = newest.requester
        await rows.hold(tx, held)
        newest = await spawns.find_report(tx, newest.id)
    if newest is None or newest.requester is None:
        return spawns.Heir()
    run = None if newest.origin_run is None else await ledger.find(tx, newest.origin_run)
    while run is not None and run.continued_by is not None:
        run = await ledger.find(tx, run.continued_by)
    return spawns.Heir(
        newest.requester,
        newest.requester_incarnation,
        None if run is None else run.id,
        newest.place,
        newest.is_from_outside,
    )


async def _record(
    tx: Transaction, report: Report, run: Run, at_ms: int, *, may_announce: bool = True
) -> list[CalledOff]:
    """Puts the result into the requester's log, exactly once, and begins what follows from it.

    A child that is about to go may not word it: then the requester answers the record itself.
    """
    child = await rows.find_by_row(tx, report.child)
    while report.requester is not None:
        # Its run may be beginning to wait, and its other children be ending, in units that have not committed:
        # whoever is last must see them.
        await rows.hold(tx, report.requester)
        current = await spawns.find_report(tx, report.id)
        if current is None or current.stage is not Stage.OPEN:
            return []
        is_held, report = current.requester == report.requester, current
        if is_held:
            break
    requester = None if report.requester is None else await rows.find_by_row(tx, report.requester)
    if child is None:
        return []
    if requester is None or report.requester_incarnation is None:
        await _keep(tx, report, at_ms)
        return []
    parts = record_parts(await find_result(tx, report, run, child, requester, at_ms))
    if report.waiter is not None:
        return await _record_for_waiter(tx, report, report.waiter, child, requester, parts, at_ms)
    report = await _after_whom(tx, report, requester)
    following = what_follows(
        report,
        is_present=requester.id == report.requester_incarnation,
        may_flow=child.taint.flows_to(requester.taint),
    )
    if following is Following.ANNOUNCE and not may_announce:
        following = Following.RUN
    origin = None if report.origin_run is None else await ledger.find(tx, report.origin_run)
    if origin is not None and not origin.is_over:
        await report_log.append_record(tx, report, child, requester, parts, None, (), at_ms)
        await spawns.change_report(
            tx, report.id, {"stage": Stage.RECORDED.value, "origin_run": report.origin_run, "ended_at": at_ms}
        )
        return []
    if following is Following.RUN:
        run_id = RunId(derived_id("run", at_ms, report.id, "answer"))
        seq = await report_log.append_record(tx, report, child, requester, parts, run_id, (report.id,), at_ms)
        await _queue(tx, requester, run_id, seq, report, origin, _to_place(report), at_ms)
    else:
        await report_log.append_record(tx, report, child, requester, parts, None, (), at_ms)
    if following is Following.ANNOUNCE:
        await _queue_announcement(tx, report, child, requester, parts, origin, at_ms)
    else:
        await _settle(tx, report, at_ms)
    return []


async def _record_for_waiter(
    tx: Transaction,
    report: Report,
    waiter: RunId,
    child: Session,
    requester: Session,
    parts: tuple[Part, ...],
    at_ms: int,
) -> list[CalledOff]:
    """The record of a child that a parked run waits for; the last one starts its continuation."""
    parked = await ledger.find(tx, waiter)
    awaited = await spawns.list_awaited(tx, waiter)
    is_last = all(other.stage is not Stage.OPEN or other.id == report.id for other in awaited)
    if parked is None or not parked.is_parked or not is_last:
        await report_log.append_record(tx, report, child, requester, parts, None, (), at_ms)
        await _settle(tx, replace(report, is_taken=True), at_ms, may_delete=parked is None or not parked.is_parked)
        return []
    run_id = _continuation_of(parked)
    end = _why_not(parked, requester, at_ms)
    answers = () if end is not None else tuple(other.id for other in awaited)
    seq = await report_log.append_record(
        tx, report, child, requester, parts, run_id, answers, at_ms, is_continued=end is None
    )
    await _settle(tx, replace(report, is_taken=True), at_ms)
    return await _go_on(tx, parked, requester, run_id, seq, end, at_ms)


async def _after_whom(tx: Transaction, report: Report, requester: Session) -> Report:
    """The report, following the requester's run that waits for it now, or has just yielded, if one has."""
    active = await ledger.find_active(tx, requester.row)
    if active is None or active.session_id != report.requester_incarnation:
        return report
    if not {report.id, report.run} & set(active.waiting_for):
        if not active.is_yielding:
            return report
        place = outbox.answers_to(active, requester.delivery)
        if report.id not in [other.id for other in await spawns.list_open(tx, active, place)]:
            return report
    if not active.has_spawned:
        await ledger.change(tx, active.id, {"has_spawned": 1})
    return replace(report, origin_run=active.id)


async def _follow_children(tx: Transaction, run: Run, at_ms: int) -> None:
    """The run that spawned has ended: what follows from results that came before. Contract: spawn 7."""
    recorded = await spawns.list_recorded(tx, run.id)
    if not recorded:
        return
    session = await rows.find_by_row(tx, run.session)
    if session is None:
        return
    is_off = run.status is RunStatus.CANCELLED or (run.status is RunStatus.TIMEOUT and run.report is not None)
    if is_off:
        for report in recorded:
            await _settle(tx, report, at_ms)
    else:
        await _follow_records(tx, session, recorded, run, at_ms)


async def _follow_records(
    tx: Transaction, session: Session, recorded: Sequence[Report], origin: Run | None, at_ms: int
) -> None:
    """What follows from results that stand in the session's log."""
    to_answer: dict[tuple[DeliveryContext | None, Principal, bool], list[Report]] = {}
    for report in recorded:
        child = await rows.find_by_row(tx, report.child)
        following = what_follows(
            report,
            is_present=session.id == report.requester_incarnation,
            may_flow=child is not None and child.taint.flows_to(session.taint),
        )
        if following is Following.RUN:
            to_answer.setdefault((report.place, report.principal, report.is_sandboxed), []).append(report)
            await _settle(tx, report, at_ms)
        elif following is Following.ANNOUNCE and child is not None:
            record = await report_log.find_record(tx, report, session)
            await _queue_announcement(tx, report, child, session, record, origin, at_ms)
        else:
            await _settle(tx, report, at_ms)
    for reports in to_answer.values():
        await _answer(tx, session, reports, origin, at_ms)


async def _answer(tx: Transaction, session: Session, reports: Sequence[Report], origin: Run | None, at_ms: int) -> None:
    """A run of the requester that goes on with records of the same place and rights, which stand in its log already."""
    run_id = RunId(derived_id("run", at_ms, reports[0].id, "answers"))
    answers = tuple(report.id for report in reports)
    seq = await report_log.append_notice(tx, session, SessionId(session.id), run_id, answers, at_ms)
    await _queue(tx, session, run_id, seq, reports[0], origin, _to_place(reports[0]), at_ms)


async def _continue(
    tx: Transaction, parked: Run, session: Session, answers: Sequence[str], at_ms: int
) -> list[CalledOff]:
    run_id = _continuation_of(parked)
    end = _why_not(parked, session, at_ms)
    seq = await report_log.append_notice(
        tx,
        session,
        SessionId(parked.session_id),
        run_id,
        () if end is not None else tuple(answers),
        at_ms,
        is_continued=end is None,
        why_not=None if end is None else end.error,
    )
    return await _go_on(tx, parked, session, run_id, seq, end, at_ms)


async def _go_on(
    tx: Transaction, parked: Run, session: Session, run_id: RunId, seq: int, end: Outcome | None, at_ms: int
) -> list[CalledOff]:
    """The run that continues the parked one; what it owed, was asked and may take is that of the other.

    With `end` it is to end so at once.
    """
    came = [report for report in await spawns.list_awaited(tx, parked.id) if report.stage is not Stage.OPEN]
    columns: dict[str, SqlValue] = {
        "continues": parked.id,
        "report": parked.report,
        "announces": parked.announces,
        "partner": parked.partner,
        "exchange": parked.exchange,
        "chain": parked.chain,
        "hops": parked.hops,
        "is_sandboxed": int(parked.is_sandboxed or any(each.is_sandboxed for each in came)),
        "has_spawned": 1,
        "deadline": None if parked.deadline is None else milliseconds(parked.deadline),
        "place": None if parked.place is None else place_text(parked.place),
    }
    await _insert(tx, session, SessionId(parked.session_id), run_id, seq, parked.principal, columns, at_ms)
    await ledger.change(tx, parked.id, {"is_parked": 0, "continued_by": run_id})
    await spawns.move_origin(tx, parked.id, run_id)
    await spawns.delete_awaited(tx, parked.id, at_ms)
    if parked.report is not None:
        await spawns.change_report(tx, parked.report, {"run": run_id})
    if end is None:
        return []
    await _release(tx, parked, session, run_id, at_ms)
    run = await ledger.find(tx, run_id)
    assert run is not None
    return [CalledOff(run, end)]


async def _release(tx: Transaction, parked: Run, session: Session, run_id: RunId, at_ms: int) -> None:
    """What the run waited for and others had begun has its own consequences now that it is not continued."""
    came: list[Report] = []
    for report in await spawns.list_awaited(tx, parked.id):
        if report.origin_run in (None, parked.id, run_id):
            continue
        await spawns.change_report(tx, report.id, {"waiter": None})
        if report.stage is Stage.DONE:
            came.append(replace(report, waiter=None, is_taken=False))
    await _follow_records(tx, session, came, None, at_ms)


def _why_not(parked: Run, session: Session, at_ms: int) -> Outcome | None:
    """How the work ends instead of being continued; None if it goes on."""
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
            error="The run took longer than it may.",
            code="run_timeout",
        )
    return None


async def _queue_announcement(
    tx: Transaction,
    report: Report,
    child: Session,
    requester: Session,
    parts: tuple[Part, ...],
    origin: Run | None,
    at_ms: int,
) -> None:
    """A turn of the child that words what the requester's channel is told."""
    run_id = RunId(derived_id("run", at_ms, report.id, "announce"))
    seq = await report_log.append_question(tx, report, child, requester, parts, run_id, at_ms)
    await _queue(tx, child, run_id, seq, report, origin, {"announces": report.id, "partner": requester.row}, at_ms)
    await spawns.change_report(tx, report.id, {"stage": Stage.ANNOUNCING.value, "ended_at": at_ms})


async def _deliver_announcement(tx: Transaction, run: Run, report_id: str, at_ms: int) -> None:
    report = await spawns.find_report(tx, report_id)
    if report is None or report.stage is not Stage.ANNOUNCING:
        return
    text = announced_text(run.status, run.reply or "", text_of(await report_log.find_question(tx, report)))
    child = await rows.find_by_row(tx, report.child)
    requester = None if report.requester is None else await rows.find_by_row(tx, report.requester)
    # Of a conversation that was begun anew since nothing is told any more.
    is_present = requester is not None and requester.id == report.requester_incarnation
    if text is not None and report.place is not None and child is not None and requester is not None and is_present:
        if child.taint.flows_to(requester.taint):
            behalf = (requester.row, SessionId(requester.id))
            await outbox.enqueue(tx, run, report.place, text, at_ms, on_behalf_of=behalf)
        else:  # it rose in the announce turn
            await _answer(tx, requester, [report], None, at_ms)
    await _settle(tx, report, at_ms)


async def take(tx: Transaction, report: Report, at_ms: int) -> None:
    """A wait of the requester brought the result: nothing more is told of it. Contract: spawn 7.

    A turn that was to word it does not begin any more; one that has begun goes on.
    """
    if report.stage in (Stage.RECORDED, Stage.DONE):
        await spawns.change_report(tx, report.id, {"is_taken": 1})
    elif report.stage is Stage.ANNOUNCING and await ledger.call_off_announcement(tx, report.child, report.id):
        await _settle(tx, replace(report, is_taken=True), at_ms)


async def _keep(tx: Transaction, report: Report, at_ms: int) -> None:
    """Nobody is left for the result: it stays in the child."""
    await spawns.change_report(tx, report.id, {"stage": Stage.KEPT.value, "ended_at": at_ms})
    await _put_by(tx, report.child, at_ms, may_delete=False)


async def _settle(tx: Transaction, report: Report, at_ms: int, *, may_delete: bool = True) -> None:
    """Nothing more follows from the result. `may_delete`: no run will still go on with it."""
    columns: dict[str, SqlValue] = {"stage": Stage.DONE.value, "is_taken": int(report.is_taken), "ended_at": at_ms}
    await spawns.change_report(tx, report.id, columns)
    await _put_by(tx, report.child, at_ms, may_delete=may_delete)


async def _put_by(tx: Transaction, child: SessionRow, at_ms: int, *, may_delete: bool = True) -> None:
    """The attachments of a task that is over go; the child is archived or deleted in its time.

    `may_delete` says that nobody needs the result any more which it holds.
    """
    spawn = await spawns.find(tx, child)
    if spawn is None:
        return
    if spawn.receipt is not None:
        task = await spawns.find_report(tx, spawn.run)
        if task is None or task.stage is not Stage.OPEN:
            await spawns.drop_attachments(tx, child)
    if spawn.mode is not Mode.RUN:
        return
    if spawn.cleanup is Cleanup.DELETE:
        if may_delete:
            await spawns.set_due(tx, child, at_ms)
    elif spawn.archive_after is not None:
        await spawns.set_due(tx, child, at_ms + round(spawn.archive_after.total_seconds() * 1000))


def _continuation_of(parked: Run) -> RunId:
    ended_ms = milliseconds(parked.ended_at or parked.created_at)
    return RunId(derived_id("run", ended_ms, parked.id, "continued"))


def _to_place(report: Report) -> dict[str, SqlValue]:
    """What sends the answer of a run to where the child was spawned for."""
    return {} if report.place is None else {"place": place_text(report.place)}


async def _queue(
    tx: Transaction,
    session: Session,
    run_id: RunId,
    seq: int,
    report: Report,
    origin: Run | None,
    columns: dict[str, SqlValue],
    at_ms: int,
) -> None:
    """A run of the session's present incarnation, in the chain of the run that spawned."""
    chain: dict[str, SqlValue] = {} if origin is None else {"chain": origin.chain, "hops": origin.hops}
    columns = {**chain, "is_sandboxed": int(report.is_sandboxed), **columns}
    await _insert(tx, session, SessionId(session.id), run_id, seq, report.principal, columns, at_ms)


async def _insert(
    tx: Transaction,
    session: Session,
    incarnation: SessionId,
    run_id: RunId,
    seq: int,
    principal: Principal,
    columns: dict[str, SqlValue],
    at_ms: int,
) -> None:
    is_delivered = await ledger.is_busy(tx, session.row)
    await ledger.insert(
        tx,
        run_id=run_id,
        session=session.row,
        incarnation=incarnation,
        agent_id=session.agent_id,
        seq=seq,
        mode=QueueMode.ENQUEUE,
        principal=principal,
        at_ms=at_ms,
        columns=columns,
    )
    if not is_delivered:
        await tx.dispatch(session.row, principal)
