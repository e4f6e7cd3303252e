"""The ledger: queued runs are claimed, record their steps, and end, each in one transaction.

A run ends only in `finish_run` and `end_queued_run`. A claim raises the run's fence; what a worker writes
afterwards counts only as long as that fence is the newest. Contract: runs 1 to 8.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from antiphon.clock import Clock
from antiphon.domain.actor import Principal
from antiphon.domain.errors import NotFound
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.ids import AgentId, ProcessId, RunId, SessionRow
from antiphon.domain.message import (
    NO_USAGE,
    AssistantMessage,
    JsonObject,
    ToolResult,
    text_content,
    text_of,
)
from antiphon.domain.run import MAX_ATTEMPTS, Outcome, Run, RunStatus, can_become
from antiphon.domain.session import SessionStatus
from antiphon.domain.text import PREVIEW_LENGTH, one_line
from antiphon.domain.transcript import OpenCall, open_calls
from antiphon.engine import outbox
from antiphon.engine.access import may_access
from antiphon.engine.refusal import Refusal, accepted
from antiphon.engine.turns import follow_run
from antiphon.store import events as log
from antiphon.store import processes
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.codec import milliseconds, moment
from antiphon.store.database import Database, Query, SqlValue, Transaction
from antiphon.store.runs import InLog, RunFilter
from antiphon.store.sessions import LogEnd

AGENT_ACTOR = "agent"
INCARNATION_COLUMNS = frozenset({"message_count", "turn_count", "preview", "context_tokens"})
"""Columns of a session's row that tell of its present incarnation; what comes late for an ended one leaves them."""
OUTCOME_UNKNOWN = (
    "The outcome of this call is unknown: the process stopped before its result was stored. "
    "It may or may not have taken effect. Check before calling again."
)
NOT_RUN = "This call was not run: the run ended before it began."


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """Who claims runs."""

    process: ProcessId
    time_limits: Mapping[AgentId, timedelta | None]
    """How long a run may take, for each agent that the process knows."""


@dataclass(frozen=True, slots=True)
class Fence:
    """A worker's right to write for a run, from its claim."""

    run_id: RunId
    number: int


class Fenced(Exception):
    """The run was taken over or ended: this worker's writes count no more."""


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
        return accepted(
            await self._database.run(cancel_run, principal, run_id, at_ms, sessions=(SessionRow(run.session),))
        )

    async def cancel_session(self, principal: Principal, session: SessionRow) -> Run | None:
        """Cancels the session's active run; None if it has none."""
        active = await self._database.read(_find_active, session)
        return None if active is None else await self.cancel(principal, active.id)


async def _find_run(query: Query, principal: Principal, run_id: RunId) -> Run | Refusal:
    run = await ledger.find(query, run_id)
    session = await rows.find_head(query, run.session) if run else None
    if run is None or session is None or not await may_access(query, principal, session.row):
        return Refusal(NotFound(f"Run not found: {run_id!r}"))
    return run


async def _list_runs(query: Query, where: RunFilter, limit: int) -> list[Run]:
    return await ledger.list_page(query, where, limit=limit)


async def _find_active(query: Query, session: SessionRow) -> Run | None:
    return await ledger.find_active(query, session)


async def claim(tx: Transaction, session: SessionRow, claimant: Claimant, at_ms: int) -> Run | None:
    """Starts the session's next run, or takes over the one whose process is gone.

    None if a living process works on it, it awaits approval, or nothing waits. The claimant itself must not be
    working on the session.
    """
    found = await ledger.find_first(tx, session)
    if found is None:
        return None
    run = found.run
    if run.status is RunStatus.QUEUED:
        return await _claim_queued(tx, found, claimant, at_ms)
    if run.status is not RunStatus.RUNNING:
        return None
    if run.process != claimant.process and await processes.is_alive(tx, run.process):
        return None
    return await _take_over(tx, found, claimant, at_ms)


async def _claim_next(tx: Transaction, session: SessionRow, claimant: Claimant, at_ms: int) -> Run | None:
    """The same for a session that no run holds."""
    found = await ledger.find_first(tx, session)
    return None if found is None else await _claim_queued(tx, found, claimant, at_ms)


async def _claim_queued(tx: Transaction, found: InLog, claimant: Claimant, at_ms: int) -> Run | None:
    run = found.run
    assert run.status is RunStatus.QUEUED
    if run.agent_id not in claimant.time_limits and await _is_known_elsewhere(tx, run.agent_id):
        return None
    limit = claimant.time_limits.get(run.agent_id)
    deadline = None if limit is None else moment(at_ms) + limit
    return await _start(tx, found, claimant, deadline=deadline, at_ms=at_ms)


async def _is_known_elsewhere(query: Query, agent_id: AgentId) -> bool:
    return any(agent_id in process.agents for process in await processes.list_all(query))


async def _take_over(tx: Transaction, found: InLog, claimant: Claimant, at_ms: int) -> Run | None:
    """The run, claimed anew; after too many crashes it is ended instead. Contract: runs 8."""
    run = found.run
    if run.attempt >= MAX_ATTEMPTS:
        outcome = Outcome(
            status=RunStatus.ERROR,
            error=f"The process died {run.attempt} times during this run; it is not tried again.",
            code="crashed",
        )
        await finish_run(tx, Fence(run.id, run.fence), outcome, None, at_ms)
        return await _claim_next(tx, SessionRow(run.session), claimant, at_ms)
    return await _start(tx, found, claimant, deadline=run.deadline, at_ms=at_ms)


async def _start(tx: Transaction, found: InLog, claimant: Claimant, *, deadline: datetime | None, at_ms: int) -> Run:
    run = found.run
    started_at = run.started_at or moment(at_ms)
    started = replace(
        run,
        status=RunStatus.RUNNING,
        fence=run.fence + 1,
        attempt=run.attempt + 1,
        process=claimant.process,
        started_at=started_at,
        deadline=deadline,
        waiting_for=None,
        wait_until=None,
    )
    await ledger.change(
        tx,
        run.id,
        {
            "status": started.status.value,
            "fence": started.fence,
            "attempt": started.attempt,
            "process": started.process,
            "started_at": milliseconds(started_at),
            "deadline": None if deadline is None else milliseconds(deadline),
            "waiting_for": None,
            "wait_until": None,
        },
    )
    event = NewEvent(type=EventType.RUN_STARTED, actor=AGENT_ACTOR, run_id=run.id, data={"attempt": started.attempt})
    status: dict[str, SqlValue] = {"status": SessionStatus.RUNNING.value}
    await _append(tx, run, [event], at_ms=at_ms, set=status, end=found.end)
    return started


async def hand_back(tx: Transaction, fence: Fence) -> None:
    """An orderly stop: the attempt does not count as crashed; the run goes on when a worker takes it over."""
    run = await ledger.find(tx, fence.run_id)
    if run is not None and run.fence == fence.number and run.status is RunStatus.RUNNING:
        await ledger.change(tx, run.id, {"attempt": run.attempt - 1, "process": None})


async def record(tx: Transaction, fence: Fence, events: Sequence[NewEvent], counted: bool, at_ms: int) -> int | None:
    """Appends what the run did; the `seq` of the last event, None if the fence is old or the run ended.

    `counted` says whether the tokens of assistant messages count against the daily cap.
    """
    found = await _fenced_run(tx, fence)
    if found is None:
        return None
    return await _append_steps(tx, found.run, events, counted=counted, at_ms=at_ms, end=found.end)


async def set_waiting(tx: Transaction, fence: Fence, waiting_for: RunId | None, wait_until: datetime | None) -> bool:
    """Notes in the ledger for which run this one waits, None for no longer; whether the fence still holds."""
    columns: dict[str, SqlValue] = {
        "waiting_for": waiting_for,
        "wait_until": None if wait_until is None else milliseconds(wait_until),
    }
    return await ledger.change_claimed(tx, fence.run_id, fence.number, columns)


@dataclass(frozen=True, slots=True)
class Ended:
    """The run has ended; `following` is the session's next one, claimed in the same transaction."""

    run: Run
    following: Run | None
    is_last: bool
    """Whether it was looked for a following one, and there is none."""


@dataclass(frozen=True, slots=True)
class NewInput:
    """The run does not end: a message joined it that its last step has not seen."""


async def finish_run(
    tx: Transaction,
    fence: Fence,
    outcome: Outcome,
    message: AssistantMessage | None,
    at_ms: int,
    counted: bool = True,
    successors: Claimant | None = None,
) -> Ended | NewInput | None:
    """Ends the run: last message, open calls, status, reply and what follows, in one transaction.

    With `successors` it claims the session's next run for that process too. None if the fence is old or the
    run has ended. Contract: runs 2, 4, 8.
    """
    found = await _fenced_run(tx, fence)
    if found is None:
        return None
    run = found.run
    if run.is_cancel_requested and run.code == "reset":
        outcome = replace(outcome, status=RunStatus.CANCELLED, code="reset", error="The session was reset.")
    if message is not None and outcome.status is RunStatus.OK and run.newest_seq > message.saw:
        await _append_steps(tx, run, [_step(run, message)], counted=counted, at_ms=at_ms, end=found.end)
        return NewInput()
    steps = [] if message is None else [_step(run, message)]
    unfinished: list[OpenCall] = []
    if outcome.status is not RunStatus.OK or message is None:
        unfinished = await _unfinished_calls(tx, run)
        steps += [_closing_step(run, call) for call in unfinished]
    ended = await _end(tx, run, outcome, steps, counted=counted, at_ms=at_ms, end=found.end)
    if run.exchange is None and outcome.status is RunStatus.OK and run.code != "reset":
        await outbox.enqueue(tx, run, run.place or found.place, outcome.reply, at_ms)
    await follow_run(tx, ended, {call_name(run.id, call) for call in unfinished}, at_ms)
    following = None if successors is None else await _claim_next(tx, run.session, successors, at_ms)
    return Ended(ended, following, is_last=successors is not None and following is None)


async def end_queued_run(tx: Transaction, run: Run, outcome: Outcome, *, at_ms: int) -> Run:
    """Ends a run that never began."""
    assert run.status is RunStatus.QUEUED
    ended = await _end(tx, run, outcome, [], counted=False, at_ms=at_ms)
    await follow_run(tx, ended, (), at_ms)
    return ended


async def _end(
    tx: Transaction,
    run: Run,
    outcome: Outcome,
    steps: Sequence[NewEvent],
    *,
    counted: bool,
    at_ms: int,
    end: LogEnd | None = None,
) -> Run:
    assert can_become(run.status, outcome.status)
    ended = replace(
        run,
        status=outcome.status,
        ended_at=moment(at_ms),
        reply=outcome.reply,
        error=outcome.error,
        code=outcome.code,
        waiting_for=None,
        wait_until=None,
    )
    await ledger.change(
        tx,
        run.id,
        {
            "status": outcome.status.value,
            "ended_at": at_ms,
            "reply": outcome.reply,
            "error": outcome.error,
            "code": outcome.code,
            "waiting_for": None,
            "wait_until": None,
        },
    )
    data: JsonObject = {"status": outcome.status.value}
    if outcome.error is not None:
        data["error"] = outcome.error
    if outcome.code is not None:
        data["code"] = outcome.code
    event = NewEvent(type=EventType.RUN_FINISHED, actor=AGENT_ACTOR, run_id=run.id, data=data)
    set: dict[str, SqlValue] = {}
    add: dict[str, int] = {}
    if run.status is not RunStatus.QUEUED:
        set["status"] = SessionStatus.IDLE.value
        set["aborted_last_run"] = int(outcome.status is RunStatus.CANCELLED)
        add["turn_count"] = 1 if outcome.status is RunStatus.OK else 0
    await _append_steps(tx, run, [*steps, event], counted=counted, at_ms=at_ms, set=set, add=add, end=end)
    return ended


async def cancel_run(tx: Transaction, principal: Principal, run_id: RunId, at_ms: int) -> Run | Refusal:
    run = await _find_run(tx, principal, run_id)
    if isinstance(run, Refusal) or run.status.is_terminal:
        return run
    if run.status is RunStatus.QUEUED:
        outcome = Outcome(status=RunStatus.CANCELLED, error="Cancelled before it began.", code="cancelled")
        return await end_queued_run(tx, run, outcome, at_ms=at_ms)
    await ledger.change(tx, run.id, {"cancel_requested": 1})
    tx.interrupt(run.session)
    return replace(run, is_cancel_requested=True)


async def _fenced_run(tx: Transaction, fence: Fence) -> InLog | None:
    found = await ledger.find_in_log(tx, fence.run_id)
    if found is None or found.run.fence != fence.number or not found.run.status.is_active:
        return None
    return found


def _step(run: Run, message: AssistantMessage) -> NewEvent:
    return NewEvent(type=EventType.ASSISTANT_MESSAGE, actor=AGENT_ACTOR, run_id=run.id, message=message)


async def _unfinished_calls(tx: Transaction, run: Run) -> list[OpenCall]:
    """Calls without a result; each gets one, so that no later run executes it."""
    return open_calls(await log.read_run(tx, run.session, run.id, from_seq=run.seq))


def _closing_step(run: Run, call: OpenCall) -> NewEvent:
    result = closing_result(call, call_name(run.id, call))
    return NewEvent(type=EventType.TOOL_RESULT, actor=AGENT_ACTOR, run_id=run.id, message=result)


def call_name(run_id: RunId, call: OpenCall) -> str:
    """The same in every attempt of the run. Contract: runs 8."""
    return f"{run_id}-{call.message_seq}-{call.index}"


def closing_result(call: OpenCall, message_id: str) -> ToolResult:
    """What stands for the outcome of a call that will have none."""
    return ToolResult(
        message_id=message_id,
        call_seq=call.message_seq,
        call_index=call.index,
        tool=call.part.name,
        tool_call_id=call.part.call_id,
        content=text_content(OUTCOME_UNKNOWN if call.is_begun else NOT_RUN),
        is_error=True,
    )


async def _append_steps(
    tx: Transaction,
    run: Run,
    events: Sequence[NewEvent],
    *,
    counted: bool,
    at_ms: int,
    set: Mapping[str, SqlValue] | None = None,
    add: Mapping[str, int] | None = None,
    end: LogEnd | None = None,
) -> int:
    """Appends and keeps the sums: counters, preview, and what was used by run, session and day."""
    set, add = dict(set or {}), dict(add or {})
    usage = NO_USAGE
    for event in events:
        match event.message:
            case AssistantMessage() as message:
                usage = usage + message.usage
                add["message_count"] = add.get("message_count", 0) + 1
                if text := text_of(message.content):
                    set["preview"] = one_line(text, PREVIEW_LENGTH)
                if message.usage.steps:
                    set["context_tokens"] = message.usage.total_tokens
            case ToolResult():
                add["message_count"] = add.get("message_count", 0) + 1
            case _:
                usage = usage + event.usage
    if usage.steps:
        await ledger.add_usage(tx, run.id, usage)
        add |= {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "steps": usage.steps,
        }
        if usage.cost_microusd is not None:
            add["cost_microusd"] = usage.cost_microusd
        if counted:
            spent = ledger.Spent(usage.total_tokens, usage.cost_microusd or 0)
            await ledger.add_spent(tx, day_of(at_ms), run.agent_id, spent)
    if run.code == "reset":
        set = {column: value for column, value in set.items() if column not in INCARNATION_COLUMNS}
        add = {column: value for column, value in add.items() if column not in INCARNATION_COLUMNS}
    return await _append(tx, run, events, at_ms=at_ms, set=set, add=add, end=end)


async def _append(
    tx: Transaction,
    run: Run,
    events: Sequence[NewEvent],
    *,
    at_ms: int,
    set: Mapping[str, SqlValue] | None = None,
    add: Mapping[str, int] | None = None,
    end: LogEnd | None = None,
) -> int:
    """Appends to the incarnation that the run belongs to, even after a reset."""
    position = await log.append(tx, run.session, run.session_id, events, at_ms=at_ms, set=set, add=add, end=end)
    if position.incarnation != run.session_id:
        await rows.stretch_incarnation(tx, run.session_id, position.last_seq)
    return position.last_seq


def day_of(at_ms: int) -> str:
    """The UTC day, `yyyy-mm-dd`."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d}"
