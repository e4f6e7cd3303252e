"""The life of a run in the ledger: claimed, at work, ended, each in one transaction.

A run ends only in `finish_run`, `end_queued_run` and `end_awaiting_run`. A claim raises the run's fence; later writes
of a worker count only while it has the newest fence. Contract: runs 1 to 8.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.checkpoint import CHECKPOINT_SOURCES, CheckpointRules, on_turn_ended
from antiphon.domain.classification import PUBLIC, Classification, join_all
from antiphon.domain.delay import Delay
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.ids import AgentId, RunId, SessionRow, StandingApprovalId
from antiphon.domain.message import (
    AssistantMessage,
    JsonObject,
)
from antiphon.domain.report import Report
from antiphon.domain.run import MAX_ATTEMPTS, YIELDED, Outcome, Purpose, Run, RunStatus, can_become
from antiphon.domain.session import DeliveryContext, SessionStatus
from antiphon.domain.transcript import OpenCall, open_calls
from antiphon.engine.access.ceilings import PLACE_CLEARANCE, find_ceiling
from antiphon.engine.approvals.answering import withdraw
from antiphon.engine.approvals.parking import park, repeat_calls
from antiphon.engine.deliveries import outbox
from antiphon.engine.deliveries.outbox import Origin, Outgoing
from antiphon.engine.exchanges.turns import follow_run
from antiphon.engine.firings.ends import RECOVERED, follow_task
from antiphon.engine.ledger.append import AGENT_ACTOR, append_events, raise_workspace
from antiphon.engine.ledger.fence import Claimant, Fence
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
from antiphon.policy.caps import TOLD_CAPS
from antiphon.policy.flow import may_enter
from antiphon.policy.sinks import Sinks
from antiphon.policy.standing import Standing
from antiphon.policy.system import system_grant
from antiphon.store import events as log
from antiphon.store import processes, spawns, standing_approvals
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.checkpoints import CHECKPOINT_DUE
from antiphon.store.codec import json_text, milliseconds, moment
from antiphon.store.database import Query, SqlValue, Transaction
from antiphon.store.events import Addition
from antiphon.store.people import find_standing
from antiphon.store.runs import FirstRun, InLog
from antiphon.store.usage import note_told

SUSPENDED = Outcome(status=RunStatus.CANCELLED, error="The person who asked is suspended.", code="suspended")
CANCELLED_EARLY = Outcome(status=RunStatus.CANCELLED, error="Cancelled before it began.", code="cancelled")
RECOVERED_RUN = Outcome(
    status=RunStatus.ERROR,
    error="The process died before the run had done anything. It is not repeated; the task fires at its next time.",
    code=RECOVERED,
)
CANCELLED_AWAITING = Outcome(
    status=RunStatus.CANCELLED, error="Cancelled before its calls were approved.", code="cancelled"
)


async def claim(tx: Transaction, session: SessionRow, claimant: Claimant, at_ms: int) -> Run | None:
    """Starts the session's next run, or takes over a run whose process has died.

    A run that waits for an approval is parked for the next one. None if a living process works on the run, or if no
    run is waiting. The claimant must not already work on the session.
    """
    first = await ledger.find_first(tx, session)
    if first is None:
        return None
    found = first.in_log
    run = found.run
    if run.status is RunStatus.QUEUED:
        return await _claim_queued(tx, first, claimant, at_ms)
    if run.status is RunStatus.AWAITING_APPROVAL:
        return await _claim_beside(tx, found, claimant, at_ms)
    if run.process != claimant.process and await processes.is_alive(tx, run.process):
        return None
    return await _take_over(tx, first, claimant, at_ms)


async def _claim_beside(tx: Transaction, awaiting: InLog, claimant: Claimant, at_ms: int) -> Run | None:
    """The next run of a session that is held by one that waits for an approval. Contract: approvals 2."""
    session = SessionRow(awaiting.run.session)
    if not await ledger.is_queued(tx, session):
        return None
    await park(tx, awaiting, at_ms)
    return await _claim_next(tx, session, claimant, at_ms)


async def _claim_next(tx: Transaction, session: SessionRow, claimant: Claimant, at_ms: int) -> Run | None:
    """The same for a session that no run holds."""
    first = await ledger.find_first(tx, session)
    return None if first is None else await _claim_queued(tx, first, claimant, at_ms)


async def _claim_queued(tx: Transaction, first: FirstRun, claimant: Claimant, at_ms: int) -> Run | None:
    found, run = first.in_log, first.in_log.run
    assert run.status is RunStatus.QUEUED
    if run.is_cancel_requested or first.is_suspended:
        await end_queued_run(tx, run, SUSPENDED if first.is_suspended else CANCELLED_EARLY, at_ms=at_ms)
        return await _claim_next(tx, SessionRow(run.session), claimant, at_ms)
    if run.agent_id not in claimant.time_limits and await _is_known_elsewhere(tx, run.agent_id):
        return None
    started = await _start(tx, found, claimant, at_ms)
    if run.continues is not None and run.approval is not None:
        await repeat_calls(tx, started, at_ms)
    return started


async def _deadline(tx: Transaction, found: InLog, claimant: Claimant, at_ms: int) -> datetime | None:
    """When the run's time is over: its deadline, but never more than its limit ahead, or that limit from now.

    A limit that is named takes the place of the default, also a longer one or none. Contract: runs 6.
    """
    run = found.run
    # Set by the requester of this run, or left of it after a wait for approval; other runs of a child take the child's.
    own_limit = run.time_limit
    if (
        own_limit is None
        and run.report is None
        and found.depth > 0
        and (spawn := await spawns.find(tx, run.session)) is not None
    ):
        own_limit = spawn.time_limit
    named = [limit for limit in (claimant.time_limits.get(run.agent_id), own_limit) if limit is not None]
    default = () if named or claimant.default_time is None else (claimant.default_time,)
    limits = [limit for limit in (*named, *default) if limit]
    if not limits:
        return run.deadline
    now, longest = moment(at_ms), min(limits)
    return now + (longest if run.deadline is None else min(run.deadline - now, longest))


async def _is_known_elsewhere(query: Query, agent_id: AgentId) -> bool:
    return any(agent_id in process.agents for process in await processes.list_all(query))


async def _take_over(tx: Transaction, first: FirstRun, claimant: Claimant, at_ms: int) -> Run | None:
    """The run, claimed again; after too many crashes it is ended instead. Contract: runs 8."""
    found, run = first.in_log, first.in_log.run
    if first.is_suspended:
        await finish_run(tx, Fence(run.id, run.fence), FinishRun(outcome=SUSPENDED, at_ms=at_ms))
        return await _claim_next(tx, SessionRow(run.session), claimant, at_ms)
    if run.purpose is Purpose.TASK and run.attempt and not await _has_done_a_step(tx, run):
        await finish_run(tx, Fence(run.id, run.fence), FinishRun(outcome=RECOVERED_RUN, at_ms=at_ms))
        return await _claim_next(tx, SessionRow(run.session), claimant, at_ms)
    if run.attempt >= MAX_ATTEMPTS:
        outcome = Outcome(
            status=RunStatus.ERROR,
            error=f"The process died {run.attempt} times during this run; it is not tried again.",
            code="crashed",
        )
        await finish_run(tx, Fence(run.id, run.fence), FinishRun(outcome=outcome, at_ms=at_ms))
        return await _claim_next(tx, SessionRow(run.session), claimant, at_ms)
    return await _start(tx, found, claimant, at_ms)


async def _has_done_a_step(query: Query, run: Run) -> bool:
    """Whether the run, or the one that it continues, has stored what its model said."""
    if run.continues is not None:
        return True
    events = await log.read_run(query, system_grant(run.session), run.id, from_seq=run.seq)
    return any(isinstance(event.message, AssistantMessage) for event in events)


async def _start(tx: Transaction, found: InLog, claimant: Claimant, at_ms: int) -> Run:
    run, deadline = found.run, await _deadline(tx, found, claimant, at_ms)
    started_at = run.started_at or moment(at_ms)
    waits = run.wait_call is not None  # a wait for several runs continues, with its deadline
    waiting_for, wait_until = (run.waiting_for, run.wait_until) if waits else ((), None)
    started = replace(
        run,
        status=RunStatus.RUNNING,
        fence=run.fence + 1,
        attempt=run.attempt + 1,
        process=claimant.process,
        started_at=started_at,
        deadline=deadline,
        waiting_for=waiting_for,
        wait_until=wait_until,
        delay=None,
    )
    columns: dict[str, SqlValue] = {
        "status": started.status.value,
        "fence": started.fence,
        "attempt": started.attempt,
        "process": started.process,
        "started_at": milliseconds(started_at),
    }
    if deadline != run.deadline:
        columns["deadline"] = None if deadline is None else milliseconds(deadline)
    if run.is_waiting:
        columns["waiting_for"] = ledger.run_ids_text(waiting_for)
        columns["wait_until"] = None if wait_until is None else milliseconds(wait_until)
        columns["delay"] = None
    await ledger.change(tx, run.id, columns)
    data: JsonObject = {"attempt": started.attempt}
    if run.continues is not None:
        data["continues"] = run.continues
    event = NewEvent(type=EventType.RUN_STARTED, actor=AGENT_ACTOR, classification=PUBLIC, run_id=run.id, data=data)
    status: dict[str, SqlValue] = {"status": SessionStatus.RUNNING.value}
    addition = Addition(incarnation=run.session_id, events=[event], at_ms=at_ms, set=status, end=found.end)
    await append_events(tx, run.session, addition)
    return started


async def hand_back(tx: Transaction, fence: Fence) -> None:
    """Releases the run in an orderly stop: the attempt does not count as crashed; another worker continues it."""
    run = await ledger.find(tx, fence.run_id)
    if run is not None and run.fence == fence.number and run.status is RunStatus.RUNNING:
        await ledger.change(tx, run.id, {"attempt": run.attempt - 1, "process": None})


async def record(tx: Transaction, fence: Fence, steps: Steps, at_ms: int) -> int | None:
    """Appends the run's steps. Returns the `seq` of the last event, None if the fence is old or the run ended."""
    found = await _fenced_run(tx, fence)
    if found is None:
        return None
    return await record_steps(tx, found.run, await _taken_in(tx, found, steps), at_ms=at_ms, end=found.end)


async def _taken_in(query: Query, found: InLog, steps: Steps) -> Steps:
    """The steps with what they were made of; withheld if that is above the session's ceiling. Contract: flow 2, 8."""
    workspace, taint = found.end.workspace, found.end.taint
    if steps.uses_workspace and workspace is not None:
        steps = replace(
            steps,
            events=[replace(event, classification=event.classification.join(workspace)) for event in steps.events],
        )
    made_of = join_all(event.classification for event in steps.events)
    if steps.sinks is None or taint is None or may_enter(made_of, taint):
        return steps
    session = await rows.find_by_row(query, SessionRow(found.run.session))
    assert session is not None
    ceiling = await find_ceiling(query, session, steps.sinks, place=found.run.place)
    return steps if may_enter(made_of, ceiling) else replace(steps, is_withheld=True)


class WorkspaceUse(Struct, frozen=True, kw_only=True):
    """How a call uses the workspace."""

    carried: Classification
    """What the call was made of; the workspace goes along."""
    left: Classification
    """What the call leaves in the workspace."""
    clearance: Classification
    """What the call may take along: everything for a command that stays in its sandbox."""


class BeginCall(Struct, frozen=True, kw_only=True):
    begun: Steps
    judged_by: Standing
    """What the principal was when the call was judged."""
    allowed_by: StandingApprovalId | None = None
    workspace: WorkspaceUse | None = None
    at_ms: int


class BegunCall(Struct, frozen=True):
    """Whether the call has begun, and what the principal whose rights it has is in this moment."""

    standing: Standing
    has_begun: bool
    workspace: Classification
    """What the workspace was made of before."""


async def begin_call(tx: Transaction, fence: Fence, command: BeginCall) -> BegunCall | None:
    """Appends that a call begins, if all that let it begin still counts. None if the fence is old or the run ended."""
    found = await _fenced_run(tx, fence)
    if found is None:
        return None
    standing = await find_standing(tx, found.run.principal)
    allowed_by, use, held = command.allowed_by, command.workspace, found.end.workspace or PUBLIC
    if standing != command.judged_by or (allowed_by and not await standing_approvals.counts(tx, allowed_by)):
        return BegunCall(standing, has_begun=False, workspace=held)
    if use is not None and not may_enter(use.carried.join(held), use.clearance):
        return BegunCall(standing, has_begun=False, workspace=held)
    await record_steps(tx, found.run, command.begun, at_ms=command.at_ms, end=found.end)
    if use is not None and held.join(use.left) != held:
        await raise_workspace(tx, found.run.session, found.run.session_id, use.left)
    return BegunCall(standing, has_begun=True, workspace=held)


async def set_waiting(tx: Transaction, fence: Fence, waiting_for: Sequence[RunId], wait_until: datetime | None) -> bool:
    """Records in the ledger the runs that this one waits for, none to end the wait; whether the fence still holds."""
    columns: dict[str, SqlValue] = {
        "waiting_for": ledger.run_ids_text(waiting_for),
        "wait_until": None if wait_until is None else milliseconds(wait_until),
    }
    return await ledger.change_claimed(tx, fence.run_id, fence.number, columns)


async def set_delay(tx: Transaction, fence: Fence, delay: Delay | None) -> bool:
    """Records why the run waits for its model's provider, None once it goes on; whether the fence still holds."""
    columns: dict[str, SqlValue] = {"delay": None if delay is None else json_text(delay)}
    return await ledger.change_claimed(tx, fence.run_id, fence.number, columns)


async def set_attachments_due(tx: Transaction, fence: Fence, is_due: bool) -> bool:
    """Records whether the run's files are still to be written; returns whether the fence still holds."""
    return await ledger.change_claimed(tx, fence.run_id, fence.number, {"has_attachments": int(is_due)})


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
    successors: Claimant | None = None
    """The process that claims the session's next run in the same unit."""
    sinks: Sinks | None = None
    """If set, the reply is checked when it is queued, not only when it is claimed; None for fixed words."""
    checkpoints: CheckpointRules | None = None
    """When the session looks back; None if it never does."""
    at_ms: int


async def finish_run(tx: Transaction, fence: Fence, command: FinishRun) -> Ended | NewInput | None:
    """Ends the run: last message, open calls, status, reply and what follows, in one transaction.

    None if the fence is old or the run has ended. Contract: runs 2, 4, 8.
    """
    found = await _fenced_run(tx, fence)
    if found is None:
        return None
    run, outcome, message, at_ms = found.run, command.outcome, command.message, command.at_ms
    made_of = (found.end.taint or PUBLIC) if command.made_of is None else command.made_of
    if run.is_cancel_requested and run.code == "reset":
        outcome = replace(outcome, status=RunStatus.CANCELLED, code="reset", error="The session was reset.")
    elif run.is_cancel_requested and run.is_yielding and outcome.status is RunStatus.OK:
        # The run ends without final words, and nothing will continue it.
        outcome = replace(outcome, status=RunStatus.CANCELLED, code="cancelled", error="The run was cancelled.")
    saw = command.saw if message is None else message.saw
    if outcome.status is RunStatus.OK and saw is not None and run.newest_seq > saw:
        if message is not None:
            last = Steps([_step(run, message, made_of)], command.model.is_counted, model=command.model.name)
            await record_steps(tx, run, last, at_ms=at_ms, end=found.end)
        return NewInput()
    steps = [] if message is None else [_step(run, message, made_of)]
    unfinished: list[OpenCall] = []
    if outcome.status is not RunStatus.OK or message is None:
        found_calls = await _unfinished_calls(tx, run)
        unfinished, made_of = found_calls.calls, made_of.join(found_calls.made_of)
        steps += [_closing_step(run, call, made_of) for call in unfinished]
    owed = await reports.find_owed(tx, run, outcome.status, depth=found.depth, at_ms=at_ms)
    if owed is not None:
        run = replace(run, report=owed.id)
    is_parked = (run.is_yielding or run.has_spawned) and await must_park(
        tx, run, outcome.status, delivery=found.place, owed=owed
    )
    if is_parked and outcome.status is RunStatus.OK:
        outcome = replace(outcome, code=YIELDED)
    last = Steps(steps, command.model.is_counted, made_of, model=command.model.name)
    held = _HoldsSession(found, command.checkpoints)
    ended = await _end(tx, run, outcome, last, at_ms=at_ms, held=held, is_parked=is_parked)
    if run.purpose.speaks_for_itself and outcome.status is RunStatus.OK and run.code != "reset":
        outgoing = Outgoing(text=outcome.reply, made_of=ended.made_of, sinks=command.sinks)
        await outbox.enqueue(tx, run, run.place or found.place, outgoing, at_ms=at_ms)
    elif run.purpose.speaks_for_itself and outcome.code in TOLD_CAPS:
        await _tell_of_cap(tx, run, run.place or found.place, outcome, at_ms=at_ms)
    if run.purpose.speaks_for_itself and (outcome.status is not RunStatus.OK or run.code == "reset"):
        await outbox.end_stream(tx, run, run.place or found.place, at_ms)
    if outcome.code == PLACE_CLEARANCE:
        await _tell_of_place(tx, ended, run.place or found.place, at_ms=at_ms)
    open_names = {call_name(run.id, call) for call in unfinished}
    await _follow(tx, ended, owed, open_names, sinks=command.sinks, at_ms=at_ms)
    successors = command.successors
    following = None if successors is None else await _claim_next(tx, run.session, successors, at_ms)
    return Ended(ended, following, is_last=successors is not None and following is None)


class _HoldsSession(NamedTuple):
    """The run that ends holds its session."""

    found: InLog
    checkpoints: CheckpointRules | None
    """When the session looks back; None if it never does."""


def _next_checkpoint(tx: Transaction, held: _HoldsSession, outcome: Outcome, at_ms: int) -> dict[str, SqlValue]:
    """The column that says when the session looks back, set by the end of each turn. Contract: checkpoints 1."""
    found, rules = held
    if rules is None or found.source_kind not in CHECKPOINT_SOURCES:
        return {}
    due_at = on_turn_ended(found.uncovered_turns + (outcome.status is RunStatus.OK), rules, at_ms)
    if due_at <= at_ms:
        tx.wake(CHECKPOINT_DUE)
    return {"checkpoint_at": due_at}


async def _tell_of_cap(tx: Transaction, run: Run, place: DeliveryContext, outcome: Outcome, *, at_ms: int) -> None:
    """Says in the person's chat, once a day, that a cap of theirs is reached. Contract: runs 6."""
    if outbox.is_external(place) and await note_told(tx, day_of(at_ms), str(run.principal)):
        # It names the cap and its limit.
        await outbox.enqueue(tx, run, place, Outgoing(text=outcome.error or "", made_of=PUBLIC), at_ms=at_ms)


async def _tell_of_place(tx: Transaction, ended: Run, place: DeliveryContext, *, at_ms: int) -> None:
    """Tells the owner in the log which place may not have what the session holds. Contract: flow 2."""
    origin = Origin(session=SessionRow(ended.session), incarnation=ended.session_id, run_id=ended.id)
    data: JsonObject = {
        "code": PLACE_CLEARANCE,
        "channel": place.channel,
        "to": place.to,
        "error": ended.error,
    }
    await outbox.tell(tx, origin, EventType.ERROR, data, made_of=ended.made_of, at_ms=at_ms)


async def end_queued_run(
    tx: Transaction, run: Run, outcome: Outcome, *, made_of: Classification = PUBLIC, at_ms: int
) -> Run:
    """Ends a run that never began. `made_of` is what the outcome was made of, PUBLIC for fixed words."""
    assert run.status is RunStatus.QUEUED
    ended = await _end(tx, run, outcome, Steps((), is_counted=False, made_of=made_of), at_ms=at_ms)
    owed = None if run.report is None else await reports.find_owed(tx, run, outcome.status, depth=0, at_ms=at_ms)
    await _follow(tx, ended, owed, (), at_ms=at_ms)
    return ended


async def end_awaiting_run(tx: Transaction, run: Run, outcome: Outcome, *, at_ms: int) -> None:
    """Ends a run that waits for an approval, parked or not, and withdraws its request. Contract: approvals 2."""
    assert run.is_awaiting_approval
    await withdraw(tx, run.id, at_ms)
    unfinished, made_of = await _unfinished_calls(tx, run)
    steps = Steps([_closing_step(run, call, made_of) for call in unfinished], is_counted=False, made_of=made_of)
    ended = await _end(tx, run, outcome, steps, at_ms=at_ms)
    await _end_stream(tx, run, at_ms)
    owed = None if run.report is None else await reports.find_owed(tx, run, outcome.status, depth=0, at_ms=at_ms)
    await _follow(tx, ended, owed, {call_name(run.id, call) for call in unfinished}, at_ms=at_ms)


async def _end_stream(tx: Transaction, run: Run, at_ms: int) -> None:
    """Deletes the message that showed what the run wrote before it asked."""
    session = await rows.find_by_row(tx, run.session)
    if session is not None and run.purpose.speaks_for_itself:
        await outbox.end_stream(tx, run, run.place or session.delivery, at_ms)


async def end_continued_run(tx: Transaction, run: Run, at_ms: int) -> None:
    """Ends a parked run whose approval was decided; its continuation is about to be queued. Contract: approvals 2."""
    assert run.is_awaiting_approval and run.is_parked
    ended = await _end(
        tx, run, Outcome(status=RunStatus.OK, code=YIELDED), Steps((), is_counted=False), at_ms=at_ms, is_parked=True
    )
    await _end_stream(tx, run, at_ms)
    await follow_run(tx, replace(ended, exchange=None), (), at_ms)


async def _follow(
    tx: Transaction,
    run: Run,
    owed: Report | None,
    open_calls: Collection[str],
    *,
    sinks: Sinks | None = None,
    at_ms: int,
) -> None:
    """Carries out the end's consequences for exchanges, for the session that spawned the run, and for its children."""
    if run.is_parked:
        await follow_run(tx, replace(run, exchange=None), open_calls, at_ms)
        await _end_all(tx, await reports.park(tx, run, at_ms), at_ms)
        return
    if run.has_spawned and _takes_children_along(run, owed):
        await _call_off_children(tx, run)
    await follow_run(tx, run, open_calls, at_ms, sinks=sinks)
    if owed is not None or run.announces is not None or run.has_spawned:
        await _end_all(tx, await reports.follow_end(tx, run, owed, at_ms, sinks=sinks), at_ms)
    if run.purpose is Purpose.TASK:
        await follow_task(tx, run, at_ms)


async def _end_all(tx: Transaction, called_off: Sequence[CancelledContinuation], at_ms: int) -> None:
    for run, outcome, made_of in called_off:
        await end_queued_run(tx, run, outcome, made_of=made_of, at_ms=at_ms)


async def end_parked_run(tx: Transaction, run_id: RunId, at_ms: int) -> None:
    """Ends the work of a parked run that was cancelled, or whose time is over. Contract: spawn 8."""
    run = await ledger.find(tx, run_id)
    if run is None or not run.is_parked:
        return
    if run.is_awaiting_approval:
        await end_awaiting_run(tx, run, CANCELLED_AWAITING, at_ms=at_ms)
        return
    await _call_off_children(tx, run)
    await _end_all(tx, await reports.end_parked(tx, run, at_ms), at_ms)


async def call_off(tx: Transaction, run: Run, outcome: Outcome, *, at_ms: int) -> None:
    """Requests the run's cancellation, and that of all work that it gave to children. Contract: runs 5, spawn 8.

    A run that waits for an approval ends at once, with that outcome: nobody works on it.
    """
    await ledger.change(tx, run.id, {"cancel_requested": 1})
    if run.is_awaiting_approval:
        await end_awaiting_run(tx, replace(run, is_cancel_requested=True), outcome, at_ms=at_ms)
        return
    tx.interrupt(run.session)
    if run.has_spawned or run.is_parked:
        await _call_off_children(tx, run)


def _takes_children_along(run: Run, owed: Report | None) -> bool:
    """A cancelled run does, even if it ended first; a timed-out one does if others await its result."""
    if run.status is RunStatus.TIMEOUT:
        return owed is not None
    return run.status is RunStatus.CANCELLED or run.is_cancel_requested


async def _call_off_children(tx: Transaction, run: Run) -> None:
    for child in await spawns.cancel_below(tx, run.id):
        tx.interrupt(child)


async def _end(
    tx: Transaction,
    run: Run,
    outcome: Outcome,
    steps: Steps,
    *,
    at_ms: int,
    held: _HoldsSession | None = None,
    is_parked: bool = False,
) -> Run:
    """`held` says that the run holds its session and is the run that ends."""
    assert can_become(run.status, outcome.status)
    made_of = run.made_of.join(steps.made_of)
    ended = replace(
        run,
        status=outcome.status,
        ended_at=moment(at_ms),
        reply=outcome.reply,
        error=outcome.error,
        code=outcome.code,
        cut=outcome.cut,
        made_of=made_of,
        waiting_for=(),
        wait_until=None,
        delay=None,
        is_parked=is_parked,
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
    set: dict[str, SqlValue] = {} if held is None else _next_checkpoint(tx, held, outcome, at_ms)
    add: dict[str, int] = {}
    if run.status is RunStatus.RUNNING:
        is_asking = found is not None and found.pending_approvals > 0
        set["status"] = (SessionStatus.AWAITING_APPROVAL if is_asking else SessionStatus.IDLE).value
    if run.status is not RunStatus.QUEUED and not run.is_parked:
        set["aborted_last_run"] = int(outcome.status is RunStatus.CANCELLED)
        add["turn_count"] = 1 if outcome.status is RunStatus.OK else 0
    last = Steps([*steps.events, event], steps.is_counted, model=steps.model)
    await record_steps(tx, run, last, at_ms=at_ms, set=set, add=add, end=None if found is None else found.end)
    ends: dict[str, SqlValue] = {
        "status": outcome.status.value,
        "ended_at": at_ms,
        "ended_on": at_ms // ledger.DAY_MS,
        "reply": outcome.reply,
        "error": outcome.error,
        "code": outcome.code,
        "cut": None if outcome.cut is None else outcome.cut.value,
        "is_parked": int(is_parked),
        **ledger.made_of_columns(made_of),
    }
    if run.is_waiting:
        ends |= {"waiting_for": None, "wait_until": None, "delay": None}
    await ledger.change(tx, run.id, ends)  # after the usage, so that the index of ended runs is written once
    if not is_parked:
        tx.wake(ledger.ends_of(SessionRow(run.session)))
    return ended


async def _fenced_run(tx: Transaction, fence: Fence) -> InLog | None:
    found = await ledger.find_in_log(tx, fence.run_id)
    if found is None or found.run.fence != fence.number or found.run.status is not RunStatus.RUNNING:
        return None
    return found


def _step(run: Run, message: AssistantMessage, made_of: Classification) -> NewEvent:
    return NewEvent(
        type=EventType.ASSISTANT_MESSAGE, actor=AGENT_ACTOR, classification=made_of, run_id=run.id, message=message
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
        type=EventType.TOOL_RESULT, actor=AGENT_ACTOR, classification=made_of, run_id=run.id, message=result
    )
