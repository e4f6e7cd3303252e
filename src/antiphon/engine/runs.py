"""The ledger: queued runs are claimed, record their steps, and end, each in one transaction.

A run ends only in `finish_run` and `end_queued_run`. A claim raises the run's fence; what a worker writes
afterwards counts only as long as that fence is the newest. Contract: runs 1 to 8.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

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
from antiphon.domain.report import Report
from antiphon.domain.run import MAX_ATTEMPTS, YIELDED, Outcome, Run, RunStatus, can_become
from antiphon.domain.session import SessionStatus
from antiphon.domain.text import PREVIEW_LENGTH, one_line
from antiphon.domain.transcript import OpenCall, open_calls
from antiphon.engine import outbox, reports
from antiphon.engine.access import may_access
from antiphon.engine.refusal import Refusal, accepted
from antiphon.engine.reports import CalledOff
from antiphon.engine.turns import follow_run
from antiphon.store import events as log
from antiphon.store import processes, spawns
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


class Cancelled(NamedTuple):
    """What was at work in a session and is being cancelled."""

    run_id: RunId | None
    """Of the session itself; None if it had none."""
    below: int
    """Runs of its descendants."""


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


def sessions_of(run: Run) -> tuple[SessionRow, ...]:
    """Those that the end of the run writes to: its own, and the one that it answers."""
    own = SessionRow(run.session)
    return (own,) if run.partner is None else (own, run.partner)


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
    if run.is_cancel_requested:
        await end_queued_run(tx, run, _cancelled(), at_ms=at_ms)
        return await _claim_next(tx, SessionRow(run.session), claimant, at_ms)
    if run.agent_id not in claimant.time_limits and await _is_known_elsewhere(tx, run.agent_id):
        return None
    limits = [limit for limit in (claimant.time_limits.get(run.agent_id), run.time_limit) if limit is not None]
    deadline = run.deadline or (moment(at_ms) + min(limits) if limits else None)
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
    waits = run.wait_call is not None  # a wait for several goes on, with its deadline
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
            "waiting_for": ledger.run_ids_text(waiting_for),
            "wait_until": None if wait_until is None else milliseconds(wait_until),
        },
    )
    data: JsonObject = {"attempt": started.attempt}
    if run.continues is not None:
        data["continues"] = run.continues
    event = NewEvent(type=EventType.RUN_STARTED, actor=AGENT_ACTOR, run_id=run.id, data=data)
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


async def set_waiting(tx: Transaction, fence: Fence, waiting_for: Sequence[RunId], wait_until: datetime | None) -> bool:
    """Notes in the ledger for which runs this one waits, none for no longer; whether the fence still holds."""
    columns: dict[str, SqlValue] = {
        "waiting_for": ledger.run_ids_text(waiting_for),
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
    owed = await reports.find_owed(tx, run, found.depth, at_ms)
    is_parked = (run.is_yielding or run.has_spawned) and await reports.must_park(tx, run, outcome.status, owed)
    if is_parked and outcome.status is RunStatus.OK:
        outcome = replace(outcome, code=YIELDED)
    ended = await _end(tx, run, outcome, steps, counted=counted, at_ms=at_ms, end=found.end, is_parked=is_parked)
    if run.exchange is None and run.announces is None and outcome.status is RunStatus.OK and run.code != "reset":
        await outbox.enqueue(tx, run, run.place or found.place, outcome.reply, at_ms)
    await _follow(tx, ended, owed, {call_name(run.id, call) for call in unfinished}, at_ms)
    following = None if successors is None else await _claim_next(tx, run.session, successors, at_ms)
    return Ended(ended, following, is_last=successors is not None and following is None)


async def end_queued_run(tx: Transaction, run: Run, outcome: Outcome, *, at_ms: int) -> Run:
    """Ends a run that never began."""
    assert run.status is RunStatus.QUEUED
    ended = await _end(tx, run, outcome, [], counted=False, at_ms=at_ms)
    owed = None if run.report is None else await reports.find_owed(tx, run, 0, at_ms)
    await _follow(tx, ended, owed, (), at_ms)
    return ended


async def _follow(tx: Transaction, run: Run, owed: Report | None, open_calls: Collection[str], at_ms: int) -> None:
    """What the end of a run entails: for exchanges, for the session that spawned it, for what it spawned."""
    if run.is_parked:
        await follow_run(tx, replace(run, exchange=None), open_calls, at_ms)
        await _end_all(tx, await reports.park(tx, run, at_ms), at_ms)
        return
    if run.has_spawned and _takes_children_along(run, owed):
        await _call_off_tree(tx, run)
    await follow_run(tx, run, open_calls, at_ms)
    if owed is not None or run.announces is not None or run.has_spawned:
        await _end_all(tx, await reports.follow_end(tx, run, owed, at_ms), at_ms)


async def _end_all(tx: Transaction, called_off: Sequence[CalledOff], at_ms: int) -> None:
    for run, outcome in called_off:
        await end_queued_run(tx, run, outcome, at_ms=at_ms)


async def end_parked_run(tx: Transaction, run_id: RunId, at_ms: int) -> None:
    """Ends the work of a parked run that was cancelled, or whose time is over. Contract: spawn 8."""
    run = await ledger.find(tx, run_id)
    if run is None or not run.is_parked:
        return
    session = await rows.find_head(tx, SessionRow(run.session))
    if session is not None:
        await _call_off_tree(tx, run)
    await _end_all(tx, await reports.end_parked(tx, run, at_ms), at_ms)


async def call_off(tx: Transaction, run: Run) -> None:
    """Asks that the run be cancelled, and all that was spawned below its session. Contract: runs 5, spawn 8."""
    await ledger.change(tx, run.id, {"cancel_requested": 1})
    tx.interrupt(run.session)
    if run.has_spawned or run.is_parked:
        await _call_off_tree(tx, run)


def _takes_children_along(run: Run, owed: Report | None) -> bool:
    """A cancelled run does, though it was quicker than its cancelling; one out of time if others await its result."""
    if run.status is RunStatus.TIMEOUT:
        return owed is not None
    return run.status is RunStatus.CANCELLED or run.is_cancel_requested


async def _call_off_tree(tx: Transaction, run: Run) -> None:
    session = await rows.find_by_row(tx, run.session)
    if session is None:
        return
    for child in (await spawns.cancel_tree(tx, session.row, session.depth)).at_work:
        tx.interrupt(child)


async def _end(
    tx: Transaction,
    run: Run,
    outcome: Outcome,
    steps: Sequence[NewEvent],
    *,
    counted: bool,
    at_ms: int,
    end: LogEnd | None = None,
    is_parked: bool = False,
) -> Run:
    assert can_become(run.status, outcome.status)
    ended = replace(
        run,
        status=outcome.status,
        ended_at=moment(at_ms),
        reply=outcome.reply,
        error=outcome.error,
        code=outcome.code,
        waiting_for=(),
        wait_until=None,
        is_parked=is_parked,
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
            **({"is_parked": 1} if is_parked else {}),
        },
    )
    data: JsonObject = {"status": outcome.status.value}
    if outcome.error is not None:
        data["error"] = outcome.error
    if outcome.code is not None:
        data["code"] = outcome.code
    if is_parked:
        data["isParked"] = True
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
        await end_queued_run(tx, run, _cancelled(), at_ms=at_ms)
    elif not run.status.is_terminal:
        await call_off(tx, run)
    current = (await ledger.find_ends(tx, [run_id])).get(run_id)
    assert current is not None
    return current


async def cancel_work(tx: Transaction, session: SessionRow, at_ms: int) -> Cancelled:
    """Cancels what the session and all below it are at work on. Contract: runs 5, spawn 8."""
    found = await ledger.find_active(tx, session)
    parked = await ledger.find_parked(tx, session)
    owing = [run for run in await ledger.find_queued(tx, session) if run.report is not None]
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
        await end_queued_run(tx, run, _cancelled(), at_ms=at_ms)
    own = [*((found,) if found else ()), *parked, *owing]
    return Cancelled(own[0].id if own else None, below)


def _cancelled() -> Outcome:
    return Outcome(status=RunStatus.CANCELLED, error="Cancelled before it began.", code="cancelled")


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
