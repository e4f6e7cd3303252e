"""The end of a run, in one transaction: last message, status, reply, and what follows from it.

A run ends only in `end_run`, `end_queued_run`, `end_awaiting_run` and `end_continued_run`. `domain/run_end` decides;
this module gathers the facts and carries the actions out. Contract: runs 2, 4, 5, 8.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.checkpoint import CHECKPOINT_SOURCES, CheckpointRules, on_turn_ended
from antiphon.domain.classification import PUBLIC, Classification, Integrity
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.ids import RunId, SessionRow
from antiphon.domain.message import AssistantMessage, JsonObject
from antiphon.domain.report import Report
from antiphon.domain.run import PLACE_CLEARANCE, TOLD_CAPS, YIELDED, Outcome, PlaceGot, Run, RunStatus, can_become
from antiphon.domain.run_end import (
    Action,
    AdvanceExchanges,
    CallOffChildren,
    EndFacts,
    EndSlot,
    KeepQuiet,
    NotePlace,
    SettleResults,
    Speak,
    TellPlace,
    WaitForChildren,
    code_of,
    got_by,
    has_new_input,
    on_finished,
    outcome_of,
    told_after,
)
from antiphon.domain.session import NOWHERE, DeliveryContext, SessionStatus
from antiphon.domain.silence import spoken
from antiphon.domain.transcript import OpenCall, open_calls
from antiphon.engine.access.recipients import may_leave
from antiphon.engine.approvals.answering import withdraw
from antiphon.engine.deliveries import outbox
from antiphon.engine.deliveries.outbox import ExitCheck, Origin, Outgoing
from antiphon.engine.deliveries.refused import send_or_ask
from antiphon.engine.deliveries.saying import say_step, tell_place
from antiphon.engine.exchanges.turns import follow_run
from antiphon.engine.firings.ends import follow_task
from antiphon.engine.ledger.append import AGENT_ACTOR
from antiphon.engine.ledger.fence import Claimant
from antiphon.engine.ledger.run_log import (
    NO_MODEL,
    Steps,
    UsedModel,
    call_name,
    closing_result,
    made_by_run,
    record_steps,
)
from antiphon.engine.ledger.spending import day_of
from antiphon.engine.reports import follow as reports
from antiphon.engine.reports.parking import CancelledContinuation, must_park
from antiphon.metrics import RUNS_SILENT
from antiphon.policy.system import system_grant
from antiphon.store import events as log
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store import spawns
from antiphon.store.checkpoints import CHECKPOINT_DUE
from antiphon.store.codec import moment, told_text
from antiphon.store.database import Query, SqlValue, Transaction
from antiphon.store.runs import InLog
from antiphon.store.usage import note_told

CANCELLED_EARLY = Outcome(status=RunStatus.CANCELLED, error="Cancelled before it began.", code="cancelled")
CANCELLED_AWAITING = Outcome(
    status=RunStatus.CANCELLED, error="Cancelled before its calls were approved.", code="cancelled"
)


class Ended(Struct, frozen=True):
    """The run has ended; `following` is the session's next one, claimed in the same transaction."""

    run: Run
    following: Run | None
    is_last: bool
    """Whether a following run was looked for and not found."""


class NewInput(Struct, frozen=True):
    """The run does not end: its last step has not seen a message that joined it."""


class FinishRun(Struct, frozen=True, kw_only=True):
    outcome: Outcome
    message: AssistantMessage | None = None
    """The run's last."""
    model: UsedModel = NO_MODEL
    """The model that wrote that message."""
    saw: int | None = None
    """The last event known to the run, if no message says it."""
    made_of: Classification | None = None
    """The run's context, of which the message and the outcome were made.

    None where no context is at hand: the taint of the run's incarnation counts instead. Contract: flow 4.
    """
    beside_log: Integrity = Integrity.TRUSTED
    """The integrity of what the message was made of that is not in the log."""
    successors: Claimant | None = None
    """The process that claims the session's next run in the same unit."""
    check: ExitCheck | None = None
    """If set, the reply is checked when it is queued, not only when it is claimed; None for fixed words."""
    checkpoints: CheckpointRules | None = None
    """When the session looks back; None if it never does."""


async def end_run(tx: Transaction, found: InLog, command: FinishRun) -> Run | NewInput:
    """Ends a run that executes: last message, open calls, status, reply and what follows. Contract: runs 2, 4."""
    run, message = found.run, command.message
    place = run.place or found.place
    made_of = (found.end.taint or PUBLIC) if command.made_of is None else command.made_of
    outcome = outcome_of(run, command.outcome)
    if has_new_input(run, outcome, saw=command.saw if message is None else message.saw):
        if message is not None:
            said = _step(run, message, made_of, command.beside_log)
            last = Steps([said], command.model.is_counted, model=command.model.name)
            seq = await record_steps(tx, run, last, end=found.end)
            overtaken = Outgoing(text=message.text, made_of=made_of, check=command.check)
            await say_step(tx, run, place, overtaken, seq=seq)
        return NewInput()
    steps = [] if message is None else [_step(run, message, made_of, command.beside_log)]
    unfinished: list[OpenCall] = []
    if outcome.status is not RunStatus.OK or message is None:
        found_calls = await _unfinished_calls(tx, run)
        unfinished, made_of = found_calls.calls, made_of.join(found_calls.made_of)
        steps += [_closing_step(run, call, made_of) for call in unfinished]
    owed = await reports.find_owed(tx, run, outcome.status, depth=found.depth)
    if owed is not None:
        run = replace(run, report=owed.id)
    is_parked = (run.is_yielding or run.has_spawned) and await must_park(
        tx, run, outcome.status, delivery=found.place, owed=owed
    )
    last_words = outcome.reply
    said = await _said_before(tx, run, outcome)
    if not outcome.reply.strip() and said.newest and not is_parked:
        outcome = replace(outcome, reply=said.newest)
    outcome = replace(outcome, code=code_of(outcome, is_parked=is_parked))
    around = EndFacts(
        place=place,
        owes_result=owed is not None,
        is_parked=is_parked,
        said=said.heard,
        may_go=await _may_go(tx, run.made_of.join(made_of), place, command.check),
        told=found.told,
        is_told_today=await _is_told_today(tx, run, outcome, place),
    )
    actions = on_finished(run, outcome, around)
    last = Steps(steps, command.model.is_counted, made_of, model=command.model.name)
    held = _HoldsSession(found, command.checkpoints)
    ended = await _end(tx, run, outcome, last, words=_PlaceWords(around, actions), held=held)
    open_calls = {call_name(run.id, call) for call in unfinished}
    scene = _EndScene(
        run=ended, place=place, owed=owed, last_words=last_words, open_calls=open_calls, check=command.check
    )
    await _carry_out(tx, scene, actions)
    return ended


async def end_queued_run(tx: Transaction, run: Run, outcome: Outcome, *, made_of: Classification = PUBLIC) -> Run:
    """Ends a run that never began. `made_of` is what the outcome was made of, PUBLIC for fixed words."""
    assert run.status is RunStatus.QUEUED
    owed = None if run.report is None else await reports.find_owed(tx, run, outcome.status, depth=0)
    around = await _look_around(tx, run, outcome, owes_result=owed is not None)
    actions = on_finished(run, outcome, around)
    last = Steps((), is_counted=False, made_of=made_of)
    ended = await _end(tx, run, outcome, last, words=_PlaceWords(around, actions))
    await _carry_out(tx, _EndScene(run=ended, place=around.place, owed=owed), actions)
    return ended


async def end_awaiting_run(tx: Transaction, run: Run, outcome: Outcome) -> None:
    """Ends a run that waits for an approval, parked or not, and withdraws its request. Contract: approvals 2."""
    assert run.is_awaiting_approval
    await withdraw(tx, run.id)
    unfinished, made_of = await _unfinished_calls(tx, run)
    steps = Steps([_closing_step(run, call, made_of) for call in unfinished], is_counted=False, made_of=made_of)
    owed = None if run.report is None else await reports.find_owed(tx, run, outcome.status, depth=0)
    around = await _look_around(tx, run, outcome, owes_result=owed is not None)
    actions = on_finished(run, outcome, around)
    ended = await _end(tx, run, outcome, steps, words=_PlaceWords(around, actions))
    open_calls = {call_name(run.id, call) for call in unfinished}
    await _carry_out(tx, _EndScene(run=ended, place=around.place, owed=owed, open_calls=open_calls), actions)


async def end_continued_run(tx: Transaction, run: Run) -> None:
    """Ends a parked run whose approval was decided; its continuation is about to be queued. Contract: approvals 2."""
    assert run.is_awaiting_approval and run.is_parked
    outcome = Outcome(status=RunStatus.OK, code=YIELDED)
    around = replace(await _look_around(tx, run, outcome), is_continued=True)
    actions = on_finished(run, outcome, around)
    ended = await _end(tx, run, outcome, Steps((), is_counted=False), words=_PlaceWords(around, actions))
    await _carry_out(tx, _EndScene(run=ended, place=around.place), actions)


async def _look_around(tx: Transaction, run: Run, outcome: Outcome, *, owes_result: bool = False) -> EndFacts:
    """The facts around a run that nobody executes; places are not judged before their texts are claimed."""
    session = await rows.find_by_row(tx, run.session)
    is_failed = outcome.status in (RunStatus.ERROR, RunStatus.TIMEOUT)
    return EndFacts(
        place=run.place or (NOWHERE if session is None else session.delivery),
        owes_result=owes_result,
        said=(await _said_before(tx, run, outcome)).heard,
        told=await rows.find_told(tx, run.session) if is_failed else (),
    )


class _SaidBefore(NamedTuple):
    """The newest text of a run's steps."""

    newest: str = ""
    heard: str | None = None
    """The same if its place has it."""


async def _said_before(tx: Transaction, run: Run, outcome: Outcome) -> _SaidBefore:
    """Reads the log only if the place has a text of the run, or the reply is to be one. Contract: runs 2.

    In an exchange an empty reply stays empty.
    """
    is_heard = run.place_got is PlaceGot.SENT
    is_wanted = outcome.status is RunStatus.OK and not outcome.reply.strip() and not run.purpose.is_of_exchange
    if not is_heard and not is_wanted:
        return _SaidBefore()
    events = await log.read_run(tx, system_grant(run.session), run.id, from_seq=run.seq)
    texts = (event.message.text for event in reversed(events) if isinstance(event.message, AssistantMessage))
    newest = next((text for text in texts if text.strip()), "")
    return _SaidBefore(newest, spoken(newest).strip() if is_heard else None)


async def _may_go(query: Query, made_of: Classification, place: DeliveryContext, check: ExitCheck | None) -> bool:
    return check is None or not place.is_outside or await may_leave(query, made_of, place, check.rules.sinks)


async def _is_told_today(tx: Transaction, run: Run, outcome: Outcome, place: DeliveryContext) -> bool:
    """Whether the person was told of their cap today; notes that they are told now otherwise. Contract: runs 6."""
    if outcome.code not in TOLD_CAPS or not place.is_outside:
        return False
    return not await note_told(tx, day_of(tx.now_ms), str(run.principal))


class _EndScene(Struct, frozen=True, kw_only=True):
    """The objects needed to carry out what follows from the end of one run."""

    run: Run
    """As it has ended."""
    place: DeliveryContext
    """Where its answers go."""
    owed: Report | None = None
    """The result that it owes."""
    last_words: str | None = None
    """The text of its last step, of which a result is made; None if that is its reply."""
    open_calls: Collection[str] = ()
    """The names of its calls whose results were never stored."""
    check: ExitCheck | None = None
    """If set, texts for channels are checked when they are queued, too."""


async def _carry_out(tx: Transaction, scene: _EndScene, actions: Sequence[Action]) -> None:
    run, place, check = scene.run, scene.place, scene.check
    for action in actions:
        match action:
            case Speak(text):
                outgoing = Outgoing(text=text, made_of=run.made_of, check=check)
                if await send_or_ask(tx, run, place, outgoing) is None:
                    RUNS_SILENT.add()
            case TellPlace(cause, is_public):
                made_of = PUBLIC if is_public else run.made_of
                await tell_place(tx, run, place, cause, made_of=made_of)
            case KeepQuiet():
                if run.fence:
                    await outbox.end_stream(tx, run, place)
            case NotePlace():
                await _note_place(tx, run, place)
            case AdvanceExchanges():
                advancing = replace(run, exchange=None) if run.is_parked else run
                await follow_run(tx, advancing, scene.open_calls, check=check)
            case WaitForChildren():
                await _end_all(tx, await reports.park(tx, run))
            case CallOffChildren():
                await _call_off_children(tx, run)
            case SettleResults():
                said = run if scene.last_words is None else replace(run, reply=scene.last_words)
                await _end_all(tx, await reports.follow_end(tx, said, scene.owed, check=check))
            case EndSlot():
                if (task := await follow_task(tx, run)) is not None:
                    await reports.record_for_task(tx, task, run, None if check is None else check.rules)


async def _note_place(tx: Transaction, ended: Run, place: DeliveryContext) -> None:
    """Tells the owner in the log which place may not have what the session holds. Contract: flow 2."""
    origin = Origin(session=SessionRow(ended.session), incarnation=ended.session_id, run_id=ended.id)
    data: JsonObject = {
        "code": PLACE_CLEARANCE,
        "channel": place.channel,
        "to": place.to,
        "error": ended.error,
    }
    await outbox.tell(tx, origin, EventType.ERROR, data, made_of=ended.made_of)


async def _end_all(tx: Transaction, called_off: Sequence[CancelledContinuation]) -> None:
    for run, outcome, made_of in called_off:
        await end_queued_run(tx, run, outcome, made_of=made_of)


async def end_parked_run(tx: Transaction, run_id: RunId) -> None:
    """Ends the work of a parked run that was cancelled, or whose time is over. Contract: spawn 8."""
    run = await ledger.find(tx, run_id)
    if run is None or not run.is_parked:
        return
    if run.is_awaiting_approval:
        await end_awaiting_run(tx, run, CANCELLED_AWAITING)
        return
    await _call_off_children(tx, run)
    await _end_all(tx, await reports.end_parked(tx, run))


async def call_off(tx: Transaction, run: Run, outcome: Outcome) -> None:
    """Requests the run's cancellation, and that of all work that it gave to children. Contract: runs 5, spawn 8.

    A run that waits for an approval ends at once, with that outcome: nobody works on it.
    """
    await ledger.change(tx, run.id, {"cancel_requested": 1})
    if run.is_awaiting_approval:
        await end_awaiting_run(tx, replace(run, is_cancel_requested=True), outcome)
        return
    tx.interrupt(run.session)
    if run.has_spawned or run.is_parked:
        await _call_off_children(tx, run)


async def _call_off_children(tx: Transaction, run: Run) -> None:
    for child in await spawns.cancel_below(tx, run.id):
        tx.interrupt(child)


class _HoldsSession(NamedTuple):
    """The run that ends holds its session."""

    found: InLog
    checkpoints: CheckpointRules | None
    """When the session looks back; None if it never does."""


def _next_checkpoint(tx: Transaction, held: _HoldsSession, outcome: Outcome) -> dict[str, SqlValue]:
    """The column that says when the session looks back, set by the end of each turn. Contract: checkpoints 1."""
    found, rules = held
    if rules is None or found.source_kind not in CHECKPOINT_SOURCES:
        return {}
    due_at = on_turn_ended(found.uncovered_turns + (outcome.status is RunStatus.OK), rules, tx.now_ms)
    if due_at <= tx.now_ms:
        tx.wake(CHECKPOINT_DUE)
    return {"checkpoint_at": due_at}


class _PlaceWords(NamedTuple):
    """What the end of a run says at its place, and why."""

    around: EndFacts
    actions: Sequence[Action]


async def _end(
    tx: Transaction,
    run: Run,
    outcome: Outcome,
    steps: Steps,
    *,
    words: _PlaceWords,
    held: _HoldsSession | None = None,
) -> Run:
    """`held` says that the run holds its session and is the run that ends."""
    assert can_become(run.status, outcome.status)
    around, is_parked = words.around, words.around.is_parked or words.around.is_continued
    made_of = run.made_of.join(steps.made_of)
    ended = replace(
        run,
        status=outcome.status,
        ended_at=moment(tx.now_ms),
        reply=outcome.reply,
        error=outcome.error,
        code=outcome.code,
        cut=outcome.cut,
        made_of=made_of,
        waiting_for=(),
        wait_until=None,
        delay=None,
        is_parked=is_parked,
        place_got=got_by(words.actions),
    )
    data: JsonObject = {"status": outcome.status.value}
    if outcome.error is not None:
        data["error"] = outcome.error
    if outcome.code is not None:
        data["code"] = outcome.code
    if outcome.cut is not None:
        data["cut"] = outcome.cut.value
    if is_parked:
        data["isParked"] = True
    event = NewEvent(type=EventType.RUN_FINISHED, actor=AGENT_ACTOR, classification=made_of, run_id=run.id, data=data)
    found = None if held is None else held.found
    set: dict[str, SqlValue] = {} if held is None else _next_checkpoint(tx, held, outcome)
    told = told_after(around, outcome, words.actions)
    if told != around.told:
        set["told"] = told_text(told)
    add: dict[str, int] = {}
    if run.status is RunStatus.RUNNING:
        is_asking = found is not None and found.pending_approvals > 0
        set["status"] = (SessionStatus.AWAITING_APPROVAL if is_asking else SessionStatus.IDLE).value
    if run.status is not RunStatus.QUEUED and not run.is_parked:
        set["aborted_last_run"] = int(outcome.status is RunStatus.CANCELLED)
        add["turn_count"] = 1 if outcome.status is RunStatus.OK else 0
    last = Steps([*steps.events, event], steps.is_counted, model=steps.model)
    await record_steps(tx, run, last, set=set, add=add, end=None if found is None else found.end)
    ends: dict[str, SqlValue] = {
        "status": outcome.status.value,
        "ended_at": tx.now_ms,
        "ended_on": tx.now_ms // ledger.DAY_MS,
        "reply": outcome.reply,
        "error": outcome.error,
        "code": outcome.code,
        "cut": None if outcome.cut is None else outcome.cut.value,
        "is_parked": int(is_parked),
        "place_got": ended.place_got,
        **ledger.made_of_columns(made_of),
    }
    if run.is_waiting:
        ends |= {"waiting_for": None, "wait_until": None, "delay": None}
    await ledger.change(tx, run.id, ends)  # after the usage, so that the index of ended runs is written once
    if not is_parked:
        tx.wake(ledger.ends_of(SessionRow(run.session)))
    return ended


def _step(run: Run, message: AssistantMessage, made_of: Classification, beside_log: Integrity) -> NewEvent:
    return NewEvent(
        type=EventType.ASSISTANT_MESSAGE,
        actor=AGENT_ACTOR,
        classification=made_of,
        run_id=run.id,
        message=message,
        own_integrity=beside_log,
    )


class _Unfinished(NamedTuple):
    calls: list[OpenCall]
    """Calls without a result; each gets one, so that no later run executes it."""
    made_of: Classification
    """The join of what the run took in and said."""


async def _unfinished_calls(tx: Transaction, run: Run) -> _Unfinished:
    events = await log.read_run(tx, system_grant(run.session), run.id, from_seq=run.seq)
    return _Unfinished(open_calls(events), await made_by_run(tx, run, events))


def _closing_step(run: Run, call: OpenCall, made_of: Classification) -> NewEvent:
    result = closing_result(call, call_name(run.id, call))
    return NewEvent(
        type=EventType.TOOL_RESULT,
        actor=AGENT_ACTOR,
        classification=made_of,
        run_id=run.id,
        message=result,
        own_integrity=Integrity.TRUSTED,
    )
