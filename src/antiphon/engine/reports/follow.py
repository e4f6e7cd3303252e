"""The consequences of ending a child's run, and of ending the run that spawned it, each in the ending transaction.

The record enters the requester's log in the transaction that ends the child's work, so there is exactly one.
`domain/report` decides. This module collects the facts under the requester's lock and carries the decision out.
Contract: spawn 7, 8.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.approval import Approval
from antiphon.domain.classification import PUBLIC, Classification, Integrity
from antiphon.domain.finding import Finding, quarantined_parts, record_parts, withheld_parts
from antiphon.domain.ids import RunId, SessionId
from antiphon.domain.message import text_of
from antiphon.domain.report import (
    AnswerRequest,
    PutAway,
    RecordResult,
    Report,
    ReportState,
    ReportTransition,
    Situation,
    Tell,
    Then,
    Word,
    announced_text,
    on_announce_ended,
    on_child_ended,
    on_origin_ended,
    on_released,
    on_yield,
)
from antiphon.domain.run import PlaceGot, Purpose, Run, RunStatus
from antiphon.domain.session import HERE, DeliveryContext, Session
from antiphon.domain.silence import spoken
from antiphon.domain.spawn import Mode
from antiphon.domain.stored_task import StoredTask
from antiphon.engine.deliveries import outbox
from antiphon.engine.deliveries.outbox import ExitCheck, Outgoing
from antiphon.engine.deliveries.refused import send_or_ask
from antiphon.engine.ledger.append import append_words, derived_id
from antiphon.engine.ledger.queue import queue_run
from antiphon.engine.reports import messages, parking, quarantined
from antiphon.engine.reports.messages import ChildRecord, Kept
from antiphon.engine.reports.parking import CancelledContinuation, Continued
from antiphon.engine.reports.result import Result, find_result
from antiphon.engine.reports.settle import archive
from antiphon.engine.reports.withheld import ask_result, find_brought
from antiphon.engine.rules import Rules
from antiphon.policy.flow import may_tell
from antiphon.policy.rights import reaches_all
from antiphon.store import incarnations, quarantine, spawns
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.database import Query, Transaction
from antiphon.store.people import find_standing
from antiphon.store.runs import NewRun

NO_RECORD = Kept((), PUBLIC)
_SEEN = frozenset({PlaceGot.SENT, PlaceGot.TOLD, PlaceGot.TOLD_BEFORE, PlaceGot.MARKER})


class _Scene(Struct, frozen=True, kw_only=True):
    """The objects needed to carry out what follows from one report."""

    report: Report
    """As it was before."""
    child: Session | None
    requester: Session | None
    origin: Run | None = None
    """The run in whose chain new runs are queued."""
    record: Kept = NO_RECORD
    """The record, if something follows that repeats it."""
    parked: Run | None = None
    """The run that waits for the result."""
    announced: Run | None = None
    """The run that worded it."""
    check: ExitCheck | None = None
    """If set, its words are checked when they are queued."""

    def record_of(self, report: Report) -> ChildRecord:
        """The record of the report, as it is now."""
        assert self.child is not None and self.requester is not None
        parts, made_of, own = self.record
        return ChildRecord(
            report=report,
            child=self.child,
            requester=self.requester,
            parts=parts,
            made_of=made_of,
            own_integrity=own,
        )


async def find_owed(tx: Transaction, run: Run, status: RunStatus, *, depth: int) -> Report | None:
    """The result that the ending run owes; in a child that stays, every run owes one.

    None for a cancelled run that its requester did not ask for.
    """
    if run.report is not None:
        return await spawns.find_report(tx, run.report)
    if depth == 0 or not run.purpose.speaks_for_itself or status is RunStatus.CANCELLED:
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
    is_of_now = run.created_at >= requester.started_at  # otherwise its requester was reset meanwhile
    report = replace(
        first,
        id=run.id,
        run=run.id,
        requester=requester.row,
        requester_incarnation=SessionId(requester.id) if is_of_now else newest.requester_incarnation,
        waiter=None,
        principal=run.principal,
        is_sandboxed=first.is_sandboxed or run.is_sandboxed,
        task=run.task,
        stage=ReportState.OPEN,
        is_taken=False,
    )
    await spawns.insert_report(tx, report, tx.now_ms)
    await ledger.change(tx, run.id, {"report": report.id})
    return report


async def park(tx: Transaction, run: Run) -> list[CancelledContinuation]:
    """Makes the ended run wait for all children of its session; continues at once if they have ended."""
    came = await spawns.list_recorded(tx, run.id, with_threads=run.is_yielding)
    session = await rows.find_by_row(tx, run.session)
    assert session is not None
    place = outbox.answers_to(run, session.delivery)
    has_open = await spawns.wait_for_all(tx, run, place, with_threads=run.is_yielding)
    for report in came:
        scene = _Scene(report=report, child=None, requester=session)
        await _carry_out(tx, scene, on_yield(report, run.id))
    if has_open:
        if run.deadline is not None:
            tx.wake(spawns.DUE)
        return []
    answers = [report.id for report in came if not report.is_taken]
    continued = await parking.continue_run(tx, run, session, answers)
    return await _follow_continued(tx, continued, session)


async def end_parked(tx: Transaction, run: Run) -> list[CancelledContinuation]:
    """Ends the work of a parked run without waiting any longer for its children."""
    session = await rows.find_by_row(tx, run.session)
    if session is None:
        return []
    continued = await parking.continue_run(tx, run, session, ())
    return await _follow_continued(tx, continued, session)


async def follow_end(
    tx: Transaction, run: Run, owed: Report | None, *, check: ExitCheck | None = None
) -> list[CancelledContinuation]:
    """Carries out the consequences of a run that has ended and is not continued.

    With `check`, a text for the requester's channel is checked now, too, not only when it is claimed.
    """
    called_off: list[CancelledContinuation] = []
    if owed is not None and owed.stage is ReportState.OPEN:
        called_off += await record(tx, owed, run, rules=None if check is None else check.rules)
    if run.announces is not None:
        await _follow_announcement(tx, run, run.announces, check=check)
    if run.has_spawned:
        await _follow_children(tx, run)
    return called_off


async def record(
    tx: Transaction, report: Report, run: Run, *, may_word: bool = True, rules: Rules | None = None
) -> list[CancelledContinuation]:
    """Puts the result into the requester's log, exactly once, and begins what follows.

    If the child is about to be deleted, it may not word the result: the requester answers the record itself. With
    `rules`, an owner is asked about a result that is withheld.
    """
    child = await rows.find_by_row(tx, report.child)
    held = await _hold_requester(tx, report)
    if held is None or child is None:
        return []
    report = held
    requester = None if report.requester is None else await rows.find_by_row(tx, report.requester)
    kept, parked, withheld = NO_RECORD, None, None
    may_flow = True
    if requester is not None and report.requester_incarnation is not None:
        result = await find_result(tx, report, run, child=child)
        clearance = await _taint_of(tx, requester, report.requester_incarnation)
        may_flow = may_tell(result.made_of, clearance)
        kept = Kept(record_parts(result.finding), result.made_of)
        told = await quarantined.find_told(tx, report, result.made_of)
        if not may_flow:
            kept = await _notice_of(tx, report, result.finding, child, requester=requester, clearance=clearance)
            withheld = result if told is None else None
        elif told is not None:
            kept = await _quarantined(tx, told, run, result.finding, integrity=clearance.integrity)
        parked = None if report.waiter is None else await ledger.find(tx, report.waiter)
    may_word = may_word and await _can_word(tx, report, child, run)
    situation = await _look_around(tx, report, requester, may_flow=may_flow, may_word=may_word)
    situation = replace(situation, is_in_thread=_is_seen(run))
    consequences = on_child_ended(report, situation)
    origin = await _origin_of(tx, consequences.report)
    if situation.follower is not None and origin is not None and not origin.has_spawned:
        await ledger.change(tx, origin.id, {"has_spawned": 1})
    scene = _Scene(report=report, child=child, requester=requester, origin=origin, record=kept, parked=parked)
    called_off = await _carry_out(tx, scene, consequences)
    if withheld is not None and rules is not None:
        await ask_result(tx, report, withheld, rules)
    return called_off


async def record_for_task(tx: Transaction, task: StoredTask, run: Run, rules: Rules | None) -> None:
    """Puts the result of the task's run, which has ended, into its chat, exactly once; no run follows.

    A silent one leaves nothing, unless it is above the chat: whether it is silent may say something of what it read.
    With `rules`, an owner is asked about a result that is withheld. Contract: tasks 1, flow 13.
    """
    is_silent = run.status is RunStatus.OK and not spoken(run.reply or "").strip()
    child, session = await rows.find_by_row(tx, run.session), task.session if task.chat is None else task.chat
    tx.hold(session)
    chat = await rows.find_by_row(tx, session)
    if child is None or chat is None or not await _may_have(tx, task, chat):
        return
    held = run.made_of.join(await ledger.made_of_before(tx, run))
    may_flow = may_tell(held, chat.taint)
    if is_silent and may_flow:
        return
    report = Report(
        id=run.id,
        run=run.id,
        child=child.row,
        requester=chat.row,
        requester_incarnation=SessionId(chat.id),
        origin_run=None,
        is_from_outside=True,
        principal=run.principal,
        is_sandboxed=run.is_sandboxed,
        task=task.id,
        stage=ReportState.OPEN,
    )
    await spawns.insert_report(tx, report, tx.now_ms)
    await spawns.change_report(tx, report, done := replace(report, stage=ReportState.DONE), tx.now_ms)
    await ledger.change(tx, run.id, {"report": report.id})
    finding, made_of = await find_result(tx, done, run, child=child)
    finding = replace(finding, name=task.name, task_run=run.id, result="" if is_silent else finding.result)
    made_of = made_of.join(held)
    kept = Kept(record_parts(finding), made_of)
    if not may_flow:
        kept = await _notice_of(tx, done, finding, child, requester=chat, clearance=chat.taint)
    scene = _Scene(report=done, child=child, requester=chat, record=kept)
    await append_words(tx, chat, messages.record_words(scene.record_of(done)))
    if not may_flow and rules is not None:
        await ask_result(tx, done, Result(finding, made_of), rules)


async def _may_have(query: Query, task: StoredTask, chat: Session) -> bool:
    """Whether the maker may still write to the chat: of another one than that in which they made the task."""
    standing = await find_standing(query, task.maker)
    if task.chat is None or reaches_all(standing):
        return True
    return await rows.is_participant(query, chat.row, str(standing.principal))


async def bring(tx: Transaction, approval: Approval, *, accepts: bool) -> None:
    """Queues a run of the requester that answers a result which a person has let it read. Contract: flow 6, 11.

    The result of a task is stored in its chat, and starts nothing.
    """
    session, report, words = await find_brought(tx, approval, accepts=accepts)
    if report.is_of_task:
        await append_words(tx, session, words)
        return
    run_id = RunId(derived_id("run", tx.now_ms, report.id, "brought"))
    await queue_run(tx, session, words, _answering(session, run_id, report, None))


async def answer(tx: Transaction, session: Session, reports: Sequence[Report], *, origin: Run | None) -> None:
    """Queues a run of the requester that answers records of the same place and rights, already in its log."""
    run_id = RunId(derived_id("run", tx.now_ms, reports[0].id, "answers"))
    names = tuple(report.id for report in reports)
    words = await messages.notice_words(tx, session, run_id, names, incarnation=SessionId(session.id))
    run = _answering(session, run_id, reports[0], origin)
    if origin is None and (child := await ledger.find(tx, reports[0].run)) is not None:
        run = replace(run, chain=child.chain)  # that of the run that spawned it
    await queue_run(tx, session, words, run)


async def _hold_requester(tx: Transaction, report: Report) -> Report | None:
    """The report, read while its requester's row is held; None if the result has come already.

    Uncommitted units may let the requester's run begin to wait, or end its other children. The last one must see them.
    """
    current = await spawns.find_report(tx, report.id)
    if current is None or current.stage is not ReportState.OPEN:
        return None
    if current.requester is not None:
        tx.hold(current.requester)
    return current


async def _notice_of(
    query: Query, report: Report, finding: Finding, child: Session, *, requester: Session, clearance: Classification
) -> Kept:
    """The notice that a result waits: as classified as the child's name, which stays out if it may not go there."""
    if may_tell(child.base, clearance):
        return Kept(withheld_parts(finding), child.base)
    spawn = await spawns.find(query, child.row)
    if spawn is not None and spawn.run == report.id and child.parent == requester.row:
        return Kept(withheld_parts(finding), clearance)  # the name is of the very incarnation that hears of it
    return Kept(withheld_parts(replace(finding, name=finding.session_key)), PUBLIC)


async def _quarantined(
    tx: Transaction, told: quarantined.QuarantinedChild, run: Run, finding: Finding, *, integrity: Integrity
) -> Kept:
    """The record of a child in quarantine. It brings no distrust itself; it inherits that of whoever spawned it."""
    found = await quarantined.tell(tx, told, run)
    counted = await quarantine.count_millibits(tx, told.scope.chain)
    parts = quarantined_parts(quarantined.told_finding(finding, run, found, counted))
    if not found.is_trusted:
        return Kept(parts, told.made_of)
    return Kept(parts, told.made_of.with_integrity(max(integrity, told.chosen)), told.chosen)


async def _taint_of(query: Query, session: Session, incarnation: SessionId) -> Classification:
    """The taint of the session's incarnation, which may have ended: late results go there even after a reset."""
    if session.id == incarnation:
        return session.taint
    ended = await incarnations.find(query, incarnation)
    return PUBLIC if ended is None else ended.taint


async def _look_around(
    tx: Transaction, report: Report, requester: Session | None, *, may_flow: bool, may_word: bool
) -> Situation:
    """The facts that decide what follows when the child has ended."""
    if requester is None:
        return Situation(has_requester=False)
    if report.waiter is not None:
        parked = await ledger.find(tx, report.waiter)
        others = [other for other in await spawns.list_awaited(tx, report.waiter) if other.id != report.id]
        return Situation(
            is_waiter_parked=parked is not None and parked.is_parked,
            is_last_awaited=all(other.stage is not ReportState.OPEN for other in others),
        )
    follower = await _find_follower(tx, report, requester)
    origin = follower or await _origin_of(tx, report)
    return Situation(
        is_present=requester.id == report.requester_incarnation,
        may_flow=may_flow,
        may_word=may_word,
        is_origin_over=origin is None or origin.is_over,
        follower=None if follower is None else follower.id,
    )


async def _find_follower(tx: Transaction, report: Report, requester: Session) -> Run | None:
    """The requester's run that waits for the result now, or that has just yielded and will continue with it."""
    active = await ledger.find_active(tx, requester.row)
    if active is None or active.session_id != report.requester_incarnation:
        return None
    if {report.id, report.run} & set(active.waiting_for):
        return active
    if not active.is_yielding:
        return None
    awaited = await spawns.list_open(tx, active, outbox.answers_to(active, requester.delivery))
    return active if report.id in [other.id for other in awaited] else None


async def _origin_of(tx: Transaction, report: Report) -> Run | None:
    return None if report.origin_run is None else await ledger.find(tx, report.origin_run)


async def _follow_children(tx: Transaction, run: Run) -> None:
    """Follows up results that came before the run that spawned the children ended. Contract: spawn 7."""
    recorded = await spawns.list_recorded(tx, run.id)
    if not recorded:
        return
    tx.hold(*(report.child for report in recorded))
    session = await rows.find_by_row(tx, run.session)
    if session is None:
        return
    is_off = run.status is RunStatus.CANCELLED or (run.status is RunStatus.TIMEOUT and run.report is not None)
    found: list[_Came] = []
    for report in recorded:
        child = await rows.find_by_row(tx, report.child)
        situation = await _standing_of(tx, report, child, session)
        found.append(_Came(report, on_origin_ended(report, situation, is_called_off=is_off), child))
    await _follow_records(tx, session, found, origin=run)


async def _follow_continued(tx: Transaction, continued: Continued, session: Session) -> list[CancelledContinuation]:
    """Results that others began, and that the parked run waited for, have their own consequences again."""
    found: list[_Came] = []
    tx.hold(*(report.child for report in continued.released))
    for report in continued.released:
        child = await rows.find_by_row(tx, report.child)
        found.append(_Came(report, on_released(report, await _standing_of(tx, report, child, session)), child))
    await _follow_records(tx, session, found, origin=None)
    return [] if continued.called_off is None else [continued.called_off]


class _Came(Struct, frozen=True):
    """A result in its requester's log, and what follows from it now."""

    report: Report
    consequences: ReportTransition
    child: Session | None


async def _standing_of(query: Query, report: Report, child: Session | None, requester: Session) -> Situation:
    """What decides once the record is in the log. A text that the child words is made of all that the child holds."""
    run = None if child is None or report.place is None else await ledger.find(query, report.run)
    return Situation(
        is_present=requester.id == report.requester_incarnation,
        may_flow=child is not None and may_tell(child.taint, requester.taint),
        may_word=child is not None and run is not None and await _can_word(query, report, child, run),
        is_in_thread=run is not None and _is_seen(run),
    )


def _is_seen(run: Run) -> bool:
    """Whether people have had the child's answer at a place of its own. Contract: spawn 4."""
    return run.place_got in _SEEN


async def _can_word(query: Query, report: Report, child: Session, run: Run) -> bool:
    """Whether the child may be asked for words: never in quarantine or after its reset, and once for each result."""
    if report.place is None or child.id != run.session_id or await spawns.find_returns(query, child.row) is not None:
        return False
    return not await messages.has_question(query, report)


async def _follow_records(tx: Transaction, session: Session, found: Sequence[_Came], *, origin: Run | None) -> None:
    """Carries out what follows; one run answers results of the same place and rights."""
    to_answer: dict[tuple[DeliveryContext | None, Principal, bool], list[Report]] = {}
    for came in found:
        actions = came.consequences.actions
        if AnswerRequest() in actions:
            rights = (came.report.place, came.report.principal, came.report.is_sandboxed)
            to_answer.setdefault(rights, []).append(came.report)
        kept = await messages.find_record(tx, came.report, session) if Word() in actions else NO_RECORD
        others = tuple(action for action in actions if action != AnswerRequest())
        scene = _Scene(report=came.report, child=came.child, requester=session, origin=origin, record=kept)
        await _carry_out(tx, scene, ReportTransition(came.consequences.report, others))
    for reports in to_answer.values():
        await answer(tx, session, reports, origin=origin)


async def _follow_announcement(tx: Transaction, run: Run, report_id: str, *, check: ExitCheck | None) -> None:
    """The child's turn that should word its result has ended."""
    report = await spawns.find_report(tx, report_id)
    if report is None or report.stage is not ReportState.ANNOUNCING:
        return
    if report.requester is not None:
        tx.hold(report.requester)
    asked = await messages.find_question(tx, report)
    child = await rows.find_by_row(tx, report.child)
    requester = None if report.requester is None else await rows.find_by_row(tx, report.requester)
    # A turn that was called off never had the question in its context, and its text may be the record.
    made_of = run.made_of.join(asked.made_of)
    situation = Situation(has_requester=False)
    if child is not None and requester is not None:
        situation = Situation(
            is_present=requester.id == report.requester_incarnation,
            may_flow=may_tell(made_of, requester.taint),
        )
    text = announced_text(run.status, run.reply or "", text_of(asked.parts))
    if report.place is not None:
        # Words change this again. Without them, the requester answers the record itself, or nobody is there any more.
        got = PlaceGot.MARKER if text is None else PlaceGot.WITHDRAWN
        await ledger.change(tx, run.id, {"place_got": got.value})
    if check is not None and text == text_of(asked.parts):
        check = replace(check, read=None)  # the run may have read nothing of it
    scene = _Scene(
        report=report, child=child, requester=requester, record=Kept(asked.parts, made_of), announced=run, check=check
    )
    await _carry_out(tx, scene, on_announce_ended(report, text, situation))


async def _carry_out(tx: Transaction, scene: _Scene, consequences: ReportTransition) -> list[CancelledContinuation]:
    report = consequences.report
    await spawns.change_report(tx, scene.report, report, tx.now_ms)
    called_off: list[CancelledContinuation] = []
    for action in consequences.actions:
        match action:
            case RecordResult(then):
                called_off += await _record(tx, report, then, scene)
            case AnswerRequest():
                assert scene.requester is not None
                await answer(tx, scene.requester, [report], origin=scene.origin)
            case Word():
                await _ask_for_words(tx, report, scene)
            case Tell(text):
                assert scene.announced is not None and scene.requester is not None and report.place is not None
                outgoing = Outgoing(
                    text=text,
                    made_of=scene.record.made_of,
                    check=scene.check,
                    on_behalf_of=(scene.requester.row, SessionId(scene.requester.id)),
                )
                queued = await send_or_ask(tx, scene.announced, report.place, outgoing)
                if queued is not None:
                    await ledger.change(tx, scene.announced.id, {"place_got": queued.got.value})
            case PutAway(may_delete):
                await archive(tx, report.child, may_delete=may_delete)
    return called_off


async def _record(tx: Transaction, report: Report, then: Then, scene: _Scene) -> list[CancelledContinuation]:
    requester, record = scene.requester, scene.record_of(report)
    assert requester is not None
    match then:
        case Then.NOTHING:
            await append_words(tx, requester, messages.record_words(record))
            return []
        case Then.ANSWER:
            run = _answering(requester, RunId(derived_id("run", tx.now_ms, report.id, "answer")), report, scene.origin)
            await queue_run(tx, requester, messages.record_words(record, (report.id,)), run)
            return []
        case Then.CONTINUE:
            parked = scene.parked
            assert parked is not None
            end = parking.why_not(parked, requester, tx.now_ms)
            awaited = await spawns.list_awaited(tx, parked.id)
            answers = () if end is not None else tuple(each.id for each in awaited)
            words = messages.record_words(record, answers, is_continued=end is None)
            continued = await parking.go_on(tx, parked, requester, words, end=end)
            return await _follow_continued(tx, continued, requester)


async def _ask_for_words(tx: Transaction, report: Report, scene: _Scene) -> None:
    """Queues a turn of the child that words the text for the requester's channel."""
    child, requester = scene.child, scene.requester
    assert child is not None and requester is not None
    run_id = RunId(derived_id("run", tx.now_ms, report.id, "announce"))
    run = _following(child, run_id, Purpose.ANNOUNCE, report=report, origin=scene.origin)
    run = replace(run, announces=report.id, partner=requester.row, cause=report.run)
    await queue_run(tx, child, messages.question_words(scene.record_of(report)), run)


def _answering(session: Session, run_id: RunId, report: Report, origin: Run | None) -> NewRun:
    """A run of the requester, whose answer goes to the place that the child was spawned for, or stays in the log."""
    run = _following(session, run_id, Purpose.RESULTS, report=report, origin=origin)
    return replace(run, place=report.place or HERE)


def _following(session: Session, run_id: RunId, purpose: Purpose, *, report: Report, origin: Run | None) -> NewRun:
    """A run of the session's present incarnation, in the chain of the run that spawned."""
    return NewRun(
        id=run_id,
        purpose=purpose,
        incarnation=SessionId(session.id),
        agent_id=session.agent_id,
        principal=report.principal,
        is_sandboxed=report.is_sandboxed,
        task=report.task,
        chain=None if origin is None else origin.chain,
        hops=0 if origin is None else origin.hops,
        cause=report.run if origin is None else origin.id,
    )
