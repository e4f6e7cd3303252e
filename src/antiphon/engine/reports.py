"""What follows when a child's run ends, and when the run that spawned it ends, each in the ending transaction.

The record enters the requester's log in the transaction that ends the child's work, so there is one and no second.
`domain/report` says what follows; here it is carried out. Contract: spawn 7, 8.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.ids import MessageId, RunId, SessionId
from antiphon.domain.message import (
    Part,
    Provenance,
    ProvenanceKind,
    ReportStage,
    ReportStep,
    ToolResult,
    UserMessage,
    text_content,
    text_of,
)
from antiphon.domain.report import (
    Finding,
    Following,
    Report,
    Stage,
    announced_text,
    record_parts,
    what_follows,
)
from antiphon.domain.run import Outcome, QueueMode, Run, RunStatus
from antiphon.domain.session import Session
from antiphon.domain.silence import spoken
from antiphon.domain.spawn import Cleanup, Mode
from antiphon.engine import outbox
from antiphon.engine.arrivals import append_words, derived_id
from antiphon.store import events as log
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store import spawns
from antiphon.store.codec import milliseconds, moment, place_text
from antiphon.store.database import SqlValue, Transaction

SOURCE_TOOL = "sessions_spawn"
CONTINUED = "Results of sub-agents came while you were at work{names}. They stand above."


class CalledOff(NamedTuple):
    """A queued run that is to end at once, since what it would go on with was called off."""

    run: Run
    outcome: Outcome


async def find_owed(tx: Transaction, run: Run, depth: int, at_ms: int) -> Report | None:
    """The result that the ending run owes; in a child that stays, each of its runs owes one."""
    if run.report is not None:
        return await spawns.find_report(tx, run.report)
    if depth == 0 or run.exchange is not None or run.announces is not None:
        return None
    spawn = await spawns.find(tx, run.session)
    if spawn is None or spawn.mode is not Mode.SESSION:
        return None
    before = await spawns.find_newest_of_child(tx, run.session)
    if before is None or before.requester is None:
        return None
    requester = await rows.find_by_row(tx, before.requester)
    if requester is None:
        return None
    report = replace(
        before,
        id=run.id,
        run=run.id,
        requester_incarnation=SessionId(requester.id),
        waiter=None,
        stage=Stage.OPEN,
        is_taken=False,
    )
    await spawns.insert_report(tx, report, at_ms)
    await ledger.change(tx, run.id, {"report": report.id})
    return report


async def must_park(tx: Transaction, run: Run, status: RunStatus, owed: Report | None) -> bool:
    """Whether the run, ending now, waits for children: it yielded, or it owes a result that theirs belong to."""
    if status not in (RunStatus.OK, RunStatus.ERROR) or run.is_cancel_requested:
        return False
    is_asked = run.is_yielding and status is RunStatus.OK
    if not is_asked and (owed is None or not run.has_spawned):
        return False
    children = await spawns.list_open(tx, run.session)
    if is_asked:
        return bool(children) or any(not report.is_taken for report in await spawns.list_recorded(tx, run.id))
    return any(report.origin_run == run.id for report in children)


async def park(tx: Transaction, run: Run, at_ms: int) -> list[CalledOff]:
    """Lets the run, which has ended, wait for all children of its session; goes on at once if they have ended."""
    came = await spawns.list_recorded(tx, run.id)
    recorded = [report for report in came if not report.is_taken]
    await spawns.wait_for_all(tx, run.session, run.id)
    for report in came:
        if report.is_taken:
            await _settle(tx, report, at_ms)
    for report in recorded:
        await spawns.change_report(tx, report.id, {"waiter": run.id})
        await _settle(tx, replace(report, is_taken=True), at_ms)
    if await spawns.has_open(tx, run.session):
        if run.deadline is not None:
            tx.wake(spawns.DUE)
        return []
    session = await rows.find_by_row(tx, run.session)
    assert session is not None
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
    called_off: list[CalledOff] = []
    for run in await ledger.find_parked(tx, session.row):
        await ledger.change(tx, run.id, {"is_parked": 0})
    for report in reports:
        if report.stage is Stage.ANNOUNCING and report.requester is not None:
            requester = await rows.find_by_row(tx, report.requester)
            if requester is not None and requester.id == report.requester_incarnation:
                await _answer(tx, requester, [report], None, report.id, at_ms)
        if report.stage is not Stage.OPEN:
            continue
        run = await ledger.find(tx, report.run)
        if run is not None:
            gone = replace(run, status=RunStatus.ERROR, error="The session was deleted.", code="session_deleted")
            called_off += await _record(tx, report, gone, at_ms)
    heir = None if not reports else reports[-1]
    await spawns.leave_to(
        tx,
        session.row,
        heir.requester if heir is not None else None,
        heir.requester_incarnation if heir is not None else None,
        heir.origin_run if heir is not None else None,
    )
    await spawns.delete_all(tx, session.row)
    return called_off


async def _record(tx: Transaction, report: Report, run: Run, at_ms: int) -> list[CalledOff]:
    """Puts the result into the requester's log, exactly once, and begins what follows from it."""
    child = await rows.find_by_row(tx, report.child)
    if report.requester is not None:
        # Its other children may be ending in units that have not committed: whoever is last must see them.
        await rows.hold(tx, report.requester)
    requester = None if report.requester is None else await rows.find_by_row(tx, report.requester)
    if child is None:
        return []
    if requester is None or report.requester_incarnation is None:
        await spawns.change_report(tx, report.id, {"stage": Stage.KEPT.value, "ended_at": at_ms})
        return []
    parts = record_parts(await _finding(tx, report, run, child, requester, at_ms))
    if report.waiter is not None:
        return await _record_for_waiter(tx, report, report.waiter, child, requester, parts, at_ms)
    report = await _after_whom(tx, report, requester)
    following = what_follows(
        report,
        is_present=requester.id == report.requester_incarnation,
        may_flow=child.taint.flows_to(requester.taint),
    )
    origin = None if report.origin_run is None else await ledger.find(tx, report.origin_run)
    if origin is not None and not origin.is_over:
        await _append_record(tx, report, child, requester, parts, None, (), at_ms)
        await spawns.change_report(
            tx, report.id, {"stage": Stage.RECORDED.value, "origin_run": report.origin_run, "ended_at": at_ms}
        )
        return []
    if following is Following.RUN:
        run_id = RunId(derived_id("run", at_ms, report.id, "answer"))
        seq = await _append_record(tx, report, child, requester, parts, run_id, (report.id,), at_ms)
        await _queue(tx, requester, run_id, seq, report, origin, {}, at_ms)
    else:
        await _append_record(tx, report, child, requester, parts, None, (), at_ms)
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
        await _append_record(tx, report, child, requester, parts, None, (), at_ms)
        await _settle(tx, replace(report, is_taken=True), at_ms)
        return []
    run_id = _continuation_of(parked)
    answers = tuple(other.id for other in awaited)
    seq = await _append_record(tx, report, child, requester, parts, run_id, answers, at_ms)
    await _settle(tx, replace(report, is_taken=True), at_ms)
    return await _go_on(tx, parked, requester, run_id, seq, at_ms)


async def _after_whom(tx: Transaction, report: Report, requester: Session) -> Report:
    """The report, following the requester's run that waits for it now, or has just yielded, if one has."""
    active = await ledger.find_active(tx, requester.row)
    if active is not None and (active.is_yielding or {report.id, report.run} & set(active.waiting_for)):
        if not active.has_spawned:
            await ledger.change(tx, active.id, {"has_spawned": 1})
        return replace(report, origin_run=active.id)
    return report


async def _follow_children(tx: Transaction, run: Run, at_ms: int) -> None:
    """The run that spawned has ended: what follows from results that came before. Contract: spawn 7."""
    recorded = await spawns.list_recorded(tx, run.id)
    if not recorded:
        return
    session = await rows.find_by_row(tx, run.session)
    if session is None:
        return
    to_answer: list[Report] = []
    for report in recorded:
        is_wanted = run.status is not RunStatus.CANCELLED
        child = await rows.find_by_row(tx, report.child)
        following = what_follows(
            report,
            is_present=session.id == report.requester_incarnation,
            may_flow=child is not None and child.taint.flows_to(session.taint),
        )
        if is_wanted and following is Following.RUN:
            to_answer.append(report)
            await _settle(tx, report, at_ms)
        elif following is Following.ANNOUNCE and is_wanted and child is not None:
            record = await _recorded_parts(tx, report, session)
            await _queue_announcement(tx, report, child, session, record, run, at_ms)
        else:
            await _settle(tx, report, at_ms)
    if to_answer:
        await _answer(tx, session, to_answer, run, run.id, at_ms)


async def _answer(
    tx: Transaction, session: Session, reports: Sequence[Report], origin: Run | None, name: str, at_ms: int
) -> None:
    """A run of the requester that goes on with records which stand in its log already."""
    run_id = RunId(derived_id("run", at_ms, name, "answer"))
    answers = tuple(report.id for report in reports)
    seq = await _append_notice(tx, session, SessionId(session.id), run_id, answers, at_ms)
    await _queue(tx, session, run_id, seq, reports[0], origin, {}, at_ms)


async def _continue(
    tx: Transaction, parked: Run, session: Session, answers: Sequence[str], at_ms: int
) -> list[CalledOff]:
    run_id = _continuation_of(parked)
    seq = await _append_notice(tx, session, SessionId(parked.session_id), run_id, tuple(answers), at_ms)
    return await _go_on(tx, parked, session, run_id, seq, at_ms)


async def _go_on(
    tx: Transaction, parked: Run, session: Session, run_id: RunId, seq: int, at_ms: int
) -> list[CalledOff]:
    """The run that continues the parked one; what it owed, was asked and may take is that of the other."""
    columns: dict[str, SqlValue] = {
        "continues": parked.id,
        "report": parked.report,
        "partner": parked.partner,
        "exchange": parked.exchange,
        "chain": parked.chain,
        "hops": parked.hops,
        "has_spawned": 1,
        "deadline": None if parked.deadline is None else milliseconds(parked.deadline),
        "place": None if parked.place is None else place_text(parked.place),
    }
    await _insert(tx, session, SessionId(parked.session_id), run_id, seq, parked.principal, columns, at_ms)
    await ledger.change(tx, parked.id, {"is_parked": 0, "continued_by": run_id})
    await spawns.move_origin(tx, parked.id, run_id)
    if parked.report is not None:
        await spawns.change_report(tx, parked.report, {"run": run_id})
    outcome = _why_not(parked, session, at_ms)
    if outcome is None:
        return []
    run = await ledger.find(tx, run_id)
    assert run is not None
    return [CalledOff(run, outcome)]


def _why_not(parked: Run, session: Session, at_ms: int) -> Outcome | None:
    """How the work ends instead of being continued; None if it goes on."""
    if parked.is_cancel_requested:
        return Outcome(
            status=RunStatus.CANCELLED, reply=parked.reply or "", error="The run was cancelled.", code="cancelled"
        )
    if session.id != parked.session_id:
        return Outcome(status=RunStatus.CANCELLED, error="The session was reset.", code="reset")
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
    message = _message(requester, parts, report.id, ReportStage.ANNOUNCE, (report.id,), at_ms)
    seq = await append_words(
        tx,
        child,
        SessionId(child.id),
        message,
        requester_as_told(requester, child),
        run_id,
        at_ms,
        is_addressed=True,
    )
    await _queue(tx, child, run_id, seq, report, origin, {"announces": report.id, "partner": requester.row}, at_ms)
    await spawns.change_report(tx, report.id, {"stage": Stage.ANNOUNCING.value, "ended_at": at_ms})


async def _deliver_announcement(tx: Transaction, run: Run, report_id: str, at_ms: int) -> None:
    report = await spawns.find_report(tx, report_id)
    if report is None or report.stage is not Stage.ANNOUNCING:
        return
    events = await log.read_run(tx, run.session, run.id, from_seq=run.seq)
    record = next((text_of(event.message.content) for event in events if event.message is not None), "")
    text = announced_text(run.status, run.reply or "", record)
    child = await rows.find_by_row(tx, report.child)
    requester = None if report.requester is None else await rows.find_by_row(tx, report.requester)
    if text is not None and report.place is not None and child is not None and requester is not None:
        assert report.requester_incarnation is not None
        if child.taint.flows_to(requester.taint):  # it may have risen in its announce turn
            behalf = (requester.row, report.requester_incarnation)
            await outbox.enqueue(tx, run, report.place, text, at_ms, on_behalf_of=behalf)
    await _settle(tx, report, at_ms)


async def _settle(tx: Transaction, report: Report, at_ms: int) -> None:
    """Nothing more follows from the result; the child is archived or deleted when its time comes."""
    columns: dict[str, SqlValue] = {"stage": Stage.DONE.value, "is_taken": int(report.is_taken), "ended_at": at_ms}
    await spawns.change_report(tx, report.id, columns)
    spawn = await spawns.find(tx, report.child)
    if spawn is None or spawn.mode is not Mode.RUN:
        return
    await spawns.drop_attachments(tx, report.child)
    if spawn.cleanup is Cleanup.DELETE:
        await spawns.set_due(tx, report.child, at_ms)
    elif spawn.archive_after is not None:
        await spawns.set_due(tx, report.child, at_ms + round(spawn.archive_after.total_seconds() * 1000))


async def _finding(
    tx: Transaction, report: Report, run: Run, child: Session, requester: Session, at_ms: int
) -> Finding:
    work = await ledger.work_for(tx, report.id)
    result, is_tool_result = spoken(run.reply or "").strip(), False
    if not result:
        result = await _newest_tool_result(tx, run)
        is_tool_result = bool(result)
    notes = () if run.code is None or run.status is not RunStatus.ERROR else (f"Code {run.code}.",)
    started_at = work.started_at or run.created_at
    return Finding(
        name=child.label or str(child.key),
        session_key=str(child.key),
        session_id=run.session_id,
        status=run.status,
        error=run.error,
        result=result if child.taint.flows_to(requester.taint) else None,
        is_tool_result=is_tool_result,
        notes=notes,
        runtime_ms=max(0, at_ms - milliseconds(started_at)),
        usage=work.usage,
    )


async def _newest_tool_result(tx: Transaction, run: Run) -> str:
    results = [
        event.message
        for event in await log.read_run(tx, run.session, run.id, from_seq=run.seq)
        if isinstance(event.message, ToolResult) and not event.message.is_error
    ]
    return text_of(results[-1].content) if results else ""


def _continuation_of(parked: Run) -> RunId:
    ended_ms = milliseconds(parked.ended_at or parked.created_at)
    return RunId(derived_id("run", ended_ms, parked.id, "continued"))


def requester_as_told(requester: Session, child: Session) -> Session:
    """The requester as the source of words that are the child's own: at the child's classification."""
    return replace(requester, taint=child.taint)


async def _append_record(
    tx: Transaction,
    report: Report,
    child: Session,
    requester: Session,
    parts: tuple[Part, ...],
    run_id: RunId | None,
    answers: tuple[str, ...],
    at_ms: int,
) -> int:
    assert report.requester_incarnation is not None
    message = _message(child, parts, report.id, ReportStage.RECORD, answers, at_ms)
    source = child if child.taint.flows_to(requester.taint) else replace(child, taint=requester.taint)
    return await append_words(
        tx, requester, report.requester_incarnation, message, source, run_id, at_ms, is_addressed=True
    )


async def _append_notice(
    tx: Transaction, session: Session, incarnation: SessionId, run_id: RunId, answers: tuple[str, ...], at_ms: int
) -> int:
    """The notice that records stand above, for a run that begins after them."""
    names = ", ".join([str(found.label or found.key) for found in await _children_of(tx, answers)])
    content = text_content(CONTINUED.format(names=f": {names}" if names else ""))
    message = _message(session, content, run_id, ReportStage.CONTINUATION, answers, at_ms)
    return await append_words(tx, session, incarnation, message, session, run_id, at_ms, is_addressed=True)


async def _children_of(tx: Transaction, answers: Sequence[str]) -> list[Session]:
    found = [await rows.find_by_row(tx, report.child) for report in await spawns.list_reports(tx, answers)]
    return [child for child in found if child is not None]


async def _recorded_parts(tx: Transaction, report: Report, requester: Session) -> tuple[Part, ...]:
    """The record as it stands in the requester's log."""
    event = await log.find_message(tx, requester.row, _message_id(report.id, ReportStage.RECORD))
    assert event is not None and event.message is not None
    return event.message.content


def _message(
    source: Session, content: tuple[Part, ...], name: str, stage: ReportStage, answers: tuple[str, ...], at_ms: int
) -> UserMessage:
    return UserMessage(
        message_id=_message_id(name, stage),
        content=content,
        provenance=Provenance(
            kind=ProvenanceKind.ANNOUNCE,
            source_session_key=str(source.key),
            source_channel=source.delivery.channel or source.key.channel,
            source_tool=SOURCE_TOOL,
        ),
        report=ReportStep(id=name, stage=stage, answers=answers),
    )


def _message_id(name: str, stage: ReportStage) -> MessageId:
    """One for each report and stage: the log itself refuses a second record."""
    return MessageId(derived_id("msg", 0, name, stage.value))


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
    await _insert(tx, session, SessionId(session.id), run_id, seq, report.principal, {**chain, **columns}, at_ms)


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
        await tx.dispatch(session.row)
