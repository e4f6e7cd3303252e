"""The life of a run in the ledger: claimed, at work, ended, each in one transaction.

What follows from an end is in `ends`. A claim raises the run's fence; later writes of a worker count only while it has
the newest fence. Contract: runs 1 to 8.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.classification import PUBLIC, Classification, Integrity, join_all
from antiphon.domain.delay import Delay
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.ids import AgentId, RunId, SessionRow, StandingApprovalId
from antiphon.domain.left_out import has_images
from antiphon.domain.message import (
    AssistantMessage,
    JsonObject,
)
from antiphon.domain.run import MAX_ATTEMPTS, Outcome, Purpose, Run, RunStatus
from antiphon.domain.session import SessionStatus
from antiphon.engine.access.ceilings import find_ceiling
from antiphon.engine.approvals.parking import park, repeat_calls
from antiphon.engine.deliveries.outbox import Outgoing
from antiphon.engine.deliveries.saying import may_speak, say_left_out, say_step, sends_interim
from antiphon.engine.firings.ends import RECOVERED
from antiphon.engine.ledger.append import AGENT_ACTOR, append_events, raise_workspace
from antiphon.engine.ledger.fence import Claimant, Fence
from antiphon.engine.ledger.run_log import (
    Steps,
    record_steps,
)
from antiphon.engine.runs.ends import CANCELLED_EARLY, Ended, FinishRun, NewInput, end_queued_run, end_run
from antiphon.policy.exit import takes
from antiphon.policy.flow import is_held, may_hold
from antiphon.policy.standing import Standing
from antiphon.policy.system import system_grant
from antiphon.policy.voices import Voices
from antiphon.store import code_agents, processes, runner_states, spawns, standing_approvals, trusted_content
from antiphon.store import events as log
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.codec import json_text, milliseconds, moment
from antiphon.store.database import Query, SqlValue, Transaction
from antiphon.store.events import Addition
from antiphon.store.people import find_standing
from antiphon.store.runner_states import RunnerState, StateName
from antiphon.store.runs import FirstRun, InLog

SUSPENDED = Outcome(status=RunStatus.CANCELLED, error="The person who asked is suspended.", code="suspended")
RECOVERED_RUN = Outcome(
    status=RunStatus.ERROR,
    error="The process died before the run had done anything. It is not repeated; the task fires at its next time.",
    code=RECOVERED,
)


async def claim(tx: Transaction, session: SessionRow, claimant: Claimant) -> Run | None:
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
        return await _claim_queued(tx, first, claimant)
    if run.status is RunStatus.AWAITING_APPROVAL:
        return await _claim_beside(tx, found, claimant)
    if run.process != claimant.process and await processes.is_alive(tx, run.process):
        return None
    return await _take_over(tx, first, claimant)


async def _claim_beside(tx: Transaction, awaiting: InLog, claimant: Claimant) -> Run | None:
    """The next run of a session that is held by one that waits for an approval. Contract: approvals 2."""
    session = SessionRow(awaiting.run.session)
    if not await ledger.is_queued(tx, session):
        return None
    await park(tx, awaiting)
    return await _claim_next(tx, session, claimant)


async def _claim_next(tx: Transaction, session: SessionRow, claimant: Claimant) -> Run | None:
    """The same for a session that no run holds."""
    first = await ledger.find_first(tx, session)
    return None if first is None else await _claim_queued(tx, first, claimant)


async def _claim_queued(tx: Transaction, first: FirstRun, claimant: Claimant) -> Run | None:
    found, run = first.in_log, first.in_log.run
    assert run.status is RunStatus.QUEUED
    if run.is_cancel_requested or first.is_suspended:
        await end_queued_run(tx, run, SUSPENDED if first.is_suspended else CANCELLED_EARLY)
        return await _claim_next(tx, SessionRow(run.session), claimant)
    if await _is_for_others(tx, run, claimant):
        return None
    started = await _start(tx, found, claimant)
    if run.continues is not None and run.approval is not None:
        await repeat_calls(tx, started)
    return started


async def _deadline(tx: Transaction, found: InLog, claimant: Claimant) -> datetime | None:
    """When the run's time is over: its deadline, but never more than its limit ahead, or that limit from now.

    A limit that is named takes the place of the default, also a longer one or none. The default, which nobody named,
    begins anew when the run is taken over: an outage that is longer than it ends no work. Contract: runs 6, 8.
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
    now, longest = moment(tx.now_ms), min(limits)
    if default and not claimant.is_default_named and run.status is RunStatus.RUNNING:
        return now + longest
    return now + (longest if run.deadline is None else min(run.deadline - now, longest))


async def _is_for_others(query: Query, run: Run, claimant: Claimant) -> bool:
    """Whether the run waits for a process that can carry it out: its agent is given in code, say, that is not here.

    Contract: foreign_agents 1.
    """
    if run.agent_id in claimant.time_limits:
        return False
    if run.agent_id in claimant.lacking or await code_agents.exists(query, AgentId(run.agent_id)):
        return True
    return any(run.agent_id in process.agents for process in await processes.list_all(query))


async def _take_over(tx: Transaction, first: FirstRun, claimant: Claimant) -> Run | None:
    """The run, claimed again; after too many crashes it is ended instead. Contract: runs 8."""
    found, run = first.in_log, first.in_log.run
    if await _is_for_others(tx, run, claimant):
        return None
    if first.is_suspended:
        await finish_run(tx, Fence(run.id, run.fence), FinishRun(outcome=SUSPENDED))
        return await _claim_next(tx, SessionRow(run.session), claimant)
    if run.purpose is Purpose.TASK and run.attempt and not await _has_done_a_step(tx, run):
        await finish_run(tx, Fence(run.id, run.fence), FinishRun(outcome=RECOVERED_RUN))
        return await _claim_next(tx, SessionRow(run.session), claimant)
    if run.attempt >= MAX_ATTEMPTS:
        outcome = Outcome(
            status=RunStatus.ERROR,
            error=f"The process died {run.attempt} times during this run; it is not tried again.",
            code="crashed",
        )
        await finish_run(tx, Fence(run.id, run.fence), FinishRun(outcome=outcome))
        return await _claim_next(tx, SessionRow(run.session), claimant)
    return await _start(tx, found, claimant)


async def _has_done_a_step(query: Query, run: Run) -> bool:
    """Whether the run, or the one that it continues, has stored what its model said."""
    if run.continues is not None:
        return True
    events = await log.read_run(query, system_grant(run.session), run.id, from_seq=run.seq)
    return any(isinstance(event.message, AssistantMessage) for event in events)


async def _start(tx: Transaction, found: InLog, claimant: Claimant) -> Run:
    run, deadline = found.run, await _deadline(tx, found, claimant)
    started_at = run.started_at or moment(tx.now_ms)
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
    addition = Addition(incarnation=run.session_id, events=[event], at_ms=tx.now_ms, set=status, end=found.end)
    await append_events(tx, run.session, addition)
    return started


async def hand_back(tx: Transaction, fence: Fence) -> None:
    await ledger.CLAIMS.hand_back(tx, fence)


async def record(tx: Transaction, fence: Fence, steps: Steps) -> int | None:
    """Appends the run's steps. Returns the `seq` of the last event, None if the fence is old or the run ended."""
    found = await _fenced_run(tx, fence)
    if found is None:
        return None
    steps = await _taken_in(tx, found, steps)
    seq = await record_steps(tx, found.run, steps, end=found.end)
    for event in steps.events:
        if event.type is EventType.LEFT_OUT and has_images(event.data or {}):
            await say_left_out(tx, found.run, found.run.place or found.place, event, seq=seq)
    return seq


class RecordStep(Struct, frozen=True, kw_only=True):
    """A step of the model that has calls."""

    steps: Steps
    words: Outgoing
    """What it says beside its calls."""
    voices: Voices


async def record_step(tx: Transaction, fence: Fence, command: RecordStep) -> int | None:
    """Like `record`, for a step whose words go to the run's place in the same unit, so once. Contract: runs 2."""
    found = await _fenced_run(tx, fence)
    if found is None:
        return None
    run, place = found.run, found.run.place or found.place
    seq = await record_steps(tx, run, await _taken_in(tx, found, command.steps), end=found.end)
    if may_speak(run, place) and await sends_interim(tx, run, place, command.voices):
        await say_step(tx, run, place, command.words, seq=seq)
    return seq


async def _taken_in(query: Query, found: InLog, steps: Steps) -> Steps:
    """The steps with what they were made of; withheld if that is above the session's ceiling. Contract: flow 2, 8."""
    workspace, taint = found.end.workspace, found.end.taint
    if steps.uses_workspace and workspace is not None:
        steps = replace(
            steps,
            events=[
                replace(
                    event,
                    classification=event.classification.join(workspace),
                    own_integrity=max(event.own_integrity or Integrity.TRUSTED, workspace.integrity),
                )
                for event in steps.events
            ],
        )
    made_of = join_all(event.classification for event in steps.events)
    if steps.sinks is None or taint is None or is_held(made_of, taint):
        return steps
    session = await rows.find_by_row(query, SessionRow(found.run.session))
    assert session is not None
    ceiling = await find_ceiling(query, session, steps.sinks, place=found.run.place)
    return steps if may_hold(made_of, ceiling) else replace(steps, is_withheld=True)


async def save_state(tx: Transaction, fence: Fence, steps: Steps, text: str) -> int | None:
    """Keeps the text of the run's runner, with the event that says so. None if the fence is old or the run ended."""
    found = await _fenced_run(tx, fence)
    if found is None:
        return None
    run, made_of = found.run, join_all(event.classification for event in steps.events)
    seq = await record_steps(tx, run, steps, end=found.end)
    name = StateName(SessionRow(run.session), run.session_id, AgentId(run.agent_id))
    await runner_states.put(tx, name, RunnerState(text=text, made_of=made_of, seq=seq))
    return seq


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
    trusts: frozenset[str] = frozenset()
    """The content that must still be trusted, by its hash."""
    workspace: WorkspaceUse | None = None


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
    if not await trusted_content.count(tx, SessionRow(found.run.session), command.trusts):
        return BegunCall(standing, has_begun=False, workspace=held)
    if use is not None and not takes(use.clearance, use.carried.join(held)):
        return BegunCall(standing, has_begun=False, workspace=held)
    await record_steps(tx, found.run, command.begun, end=found.end)
    if use is not None and held.join(use.left) != held:
        await raise_workspace(tx, found.run.session, found.run.session_id, use.left)
    return BegunCall(standing, has_begun=True, workspace=held)


async def set_waiting(tx: Transaction, fence: Fence, waiting_for: Sequence[RunId], wait_until: datetime | None) -> bool:
    """Records in the ledger the runs that this one waits for, none to end the wait; whether the fence still holds."""
    columns: dict[str, SqlValue] = {
        "waiting_for": ledger.run_ids_text(waiting_for),
        "wait_until": None if wait_until is None else milliseconds(wait_until),
    }
    return await ledger.CLAIMS.write(tx, fence, columns)


async def set_delay(tx: Transaction, fence: Fence, delay: Delay | None) -> bool:
    """Records why the run waits for its model's provider, None once it goes on; whether the fence still holds."""
    columns: dict[str, SqlValue] = {"delay": None if delay is None else json_text(delay)}
    return await ledger.CLAIMS.write(tx, fence, columns)


async def set_attachments_due(tx: Transaction, fence: Fence, is_due: bool) -> bool:
    """Records whether the run's files are still to be written; returns whether the fence still holds."""
    return await ledger.CLAIMS.write(tx, fence, {"has_attachments": int(is_due)})


async def finish_run(tx: Transaction, fence: Fence, command: FinishRun) -> Ended | NewInput | None:
    """Ends the run, and claims the session's next one for `successors`; None if the fence is old or the run has ended.

    Contract: runs 2, 4, 8.
    """
    found = await _fenced_run(tx, fence)
    if found is None:
        return None
    ended = await end_run(tx, found, command)
    if isinstance(ended, NewInput):
        return ended
    successors = command.successors
    following = None if successors is None else await _claim_next(tx, ended.session, successors)
    return Ended(ended, following, is_last=successors is not None and following is None)


async def _fenced_run(tx: Transaction, fence: Fence) -> InLog | None:
    found = await ledger.find_in_log(tx, fence.run_id)
    if found is None or found.run.fence != fence.number or found.run.status is not RunStatus.RUNNING:
        return None
    return found
