"""Rows of tasks and of their slots. `domain/task` decides what follows from a slot. Contract: tasks 1, 2."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from antiphon.domain.actor import Principal
from antiphon.domain.classification import Classification
from antiphon.domain.ids import AgentId, RunId, SessionRow, TaskId
from antiphon.domain.send_to import SendToKind
from antiphon.domain.session import DeliveryContext
from antiphon.domain.stored_task import StoredTask, TaskEdit, TaskSlot
from antiphon.domain.task import MissedPolicy, SlotOutcome, Task, TaskState, Why
from antiphon.policy.reach import Reach
from antiphon.store import codec
from antiphon.store.database import Query, Row, SqlValue, Transaction
from antiphon.store.scopes import Condition, all_of, flow, within
from antiphon.store.select_list import SelectList

TASKS_DUE = SessionRow(-7)
"""Woken when a task may be due earlier than before."""

_MAY_CONSULT = (
    "t.may_consult = 1 AND (t.consult_by IS NULL OR EXISTS (SELECT 1 FROM people p JOIN people q "
    "ON q.id = COALESCE(p.merged_into, p.id) WHERE p.id = substr(t.consult_by, 8) AND q.role = 'owner' "
    "AND q.is_suspended = 0))"
)
"""Whether somebody who still is an owner has approved it; the principal's text is `person:` with the id."""

_TASK = SelectList(
    StoredTask,
    "t.id, t.agent_id, t.maker, t.session, s.key AS session_key, t.name, t.prompt, t.level AS made_of_level, "
    "t.compartments AS made_of_compartments, t.integrity AS made_of_integrity, t.person AS made_of_person, t.place, "
    "COALESCE(t.send_to, CASE WHEN t.place IS NULL THEN 'log' ELSE 'place' END) AS send_to, t.chat, c.key AS chat_key, "
    f"t.schedule, t.missed, t.grace, t.limits, t.keeps_context, CASE WHEN {_MAY_CONSULT} THEN 1 ELSE 0 END "
    "AS may_consult, t.is_sandboxed, t.state, "
    "t.why, t.next_at, t.errors, t.tries, t.runs, t.skips, t.last_slot_at, t.last_outcome, t.version, t.created_at, "
    "t.updated_at",
    maker=codec.stored_principal,
    made_of=codec.combined_classification("made_of"),
    place=codec.place,
    send_to=codec.member_of(SendToKind),
    schedule=codec.schedule,
    missed=codec.member_of(MissedPolicy),
    grace=codec.duration,
    limits=codec.task_limits,
    keeps_context=bool,
    may_consult=bool,
    is_sandboxed=bool,
    state=codec.member_of(TaskState),
    why=codec.member_of(Why),
    next_at=codec.moment,
    last_slot_at=codec.moment,
    last_outcome=codec.member_of(SlotOutcome),
    created_at=codec.moment,
    updated_at=codec.moment,
)
_SELECT = (
    f"SELECT {_TASK.text} FROM tasks t JOIN sessions s ON s.id = t.session "
    "LEFT JOIN sessions c ON c.id = t.chat AND c.deleted_at IS NULL"
)
_SLOT = SelectList(
    TaskSlot,
    "task, slot_at, is_manual, run, missed, outcome, why, fired_at, ended_at",
    slot_at=codec.moment,
    is_manual=bool,
    outcome=codec.member_of(SlotOutcome),
    why=codec.member_of(Why),
    fired_at=codec.moment,
    ended_at=codec.moment,
)
_SELECT_SLOT = f"SELECT {_SLOT.text} FROM task_slots"
_FIRES = "state = 'active' AND next_at IS NOT NULL"
"""The condition of the index of slots to come."""
_COLUMNS = (
    *("id", "agent_id", "maker", "session", "name", "prompt", "level", "compartments", "integrity", "person", "place"),
    *("send_to", "chat"),
    *(
        "schedule",
        "missed",
        "grace",
        "limits",
        "keeps_context",
        "may_consult",
        "is_sandboxed",
        "state",
        "why",
        "next_at",
    ),
    *("errors", "runs", "skips", "last_slot_at", "last_outcome", "version", "created_at", "updated_at"),
)
_INSERT = f"INSERT INTO tasks ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"


class Due(NamedTuple):
    """A task whose slot has come."""

    id: TaskId
    agent_id: AgentId
    next_at_ms: int


async def insert(tx: Transaction, task: StoredTask) -> None:
    values = {
        "id": task.id,
        "agent_id": task.agent_id,
        "maker": str(task.maker),
        "session": task.session,
        "name": task.name,
        "prompt": task.prompt,
        **made_of_columns(task.made_of),
        **place_columns(task.send_to, task.place, task.chat),
        "schedule": codec.json_text(task.schedule),
        "missed": task.missed.value,
        "grace": codec.optional_milliseconds(task.grace),
        "limits": codec.json_text(task.limits),
        "keeps_context": int(task.keeps_context),
        "may_consult": int(task.may_consult),
        "is_sandboxed": int(task.is_sandboxed),
        **course_columns(task),
        "why": None if task.why is None else task.why.value,
        "skips": task.skips,
        "last_slot_at": None if task.last_slot_at is None else codec.milliseconds(task.last_slot_at),
        "last_outcome": None if task.last_outcome is None else task.last_outcome.value,
        "version": task.version,
        "created_at": codec.milliseconds(task.created_at),
        "updated_at": codec.milliseconds(task.updated_at),
    }
    await tx.execute(_INSERT, [values[name] for name in _COLUMNS])
    tx.wake(TASKS_DUE)


def place_columns(send_to: SendToKind, place: DeliveryContext | None, chat: SessionRow | None) -> dict[str, SqlValue]:
    """The columns that say where its results go."""
    return {"send_to": send_to.value, "place": None if place is None else codec.place_text(place), "chat": chat}


def made_of_columns(made_of: Classification) -> dict[str, SqlValue]:
    names = ("level", "compartments", "integrity", "person")
    return dict(zip(names, codec.classification_values(made_of), strict=True))


def step_columns(task: Task, before: Task, at_ms: int) -> dict[str, SqlValue]:
    """The columns that change with a step of the task; `before` is what it was."""
    columns = course_columns(task)
    return columns if task.state is before.state else {**columns, "updated_at": at_ms}


def course_columns(task: Task) -> dict[str, SqlValue]:
    """The columns that follow from what the task does."""
    return {
        "state": task.state.value,
        "next_at": None if task.next_at is None else codec.milliseconds(task.next_at),
        "errors": task.errors,
        "tries": task.tries,
        "runs": task.runs,
    }


def edit_columns(edit: TaskEdit) -> dict[str, SqlValue]:
    """The columns that the edit changes."""
    columns: dict[str, SqlValue] = {}
    if edit.name is not None:
        columns["name"] = edit.name
    if edit.prompt is not None:
        columns["prompt"] = edit.prompt
    if edit.schedule is not None:
        columns["schedule"] = codec.json_text(edit.schedule)
    if edit.missed is not None:
        columns["missed"] = edit.missed.value
    if edit.grace is not None:
        columns["grace"] = codec.optional_milliseconds(edit.grace)
    if edit.limits is not None:
        columns["limits"] = codec.json_text(edit.limits)
    if edit.keeps_context is not None:
        columns["keeps_context"] = int(edit.keeps_context)
    return columns


async def change(tx: Transaction, id: TaskId, columns: Mapping[str, SqlValue]) -> None:
    assignments = ", ".join(f"{name} = ?" for name in columns)
    await tx.execute(f"UPDATE tasks SET {assignments} WHERE id = ?", (*columns.values(), id))
    if "next_at" in columns or "state" in columns:
        tx.wake(TASKS_DUE)


async def lock(tx: Transaction, id: TaskId) -> bool:
    """Whether the task exists; no other unit changes it until this one has committed."""
    return await tx.change("UPDATE tasks SET version = version WHERE id = ?", (id,)) == 1


async def find(query: Query, id: TaskId) -> StoredTask | None:
    return _task(await query.fetch_one(f"{_SELECT} WHERE t.id = ?", (id,)))


async def may_consult(query: Query, id: TaskId) -> bool:
    """Whether the task's runs may reach sessions of other agents; no for a task that was cancelled."""
    return await query.fetch_one(f"SELECT 1 FROM tasks t WHERE t.id = ? AND {_MAY_CONSULT}", (id,)) is not None


async def find_within(query: Query, reach: Reach, id: TaskId, *, own: TaskId | None = None) -> StoredTask | None:
    """The task, if its session is in the reach, or if it is the one that acts (`own`)."""
    condition = await _within(query, reach, own=own)
    row = await query.fetch_one(f"{_SELECT} WHERE t.id = ? AND {condition.text}", (id, *condition.values))
    return _task(row)


async def list_within(
    query: Query, reach: Reach, *, session: SessionRow | None, own: TaskId | None, after: TaskId | None, limit: int
) -> list[StoredTask]:
    """Tasks in the order of their ids, those of one session if it is named."""
    conditions = [await _within(query, reach, own=own)]
    if session is not None:
        conditions.append(Condition("t.session = ?", (session,)))
    if after is not None:
        conditions.append(Condition("t.id > ?", (after,)))
    met = all_of(conditions)
    rows = await query.fetch_all(f"{_SELECT} WHERE {met.text} ORDER BY t.id LIMIT ?", (*met.values, limit))
    return [_TASK.read(row) for row in rows]


async def list_stopped(query: Query, reach: Reach, limit: int) -> list[StoredTask]:
    """Tasks that paused by themselves, the newest first."""
    met = await _within(query, reach, own=None)
    rows = await query.fetch_all(
        f"{_SELECT} WHERE t.state = 'paused' AND t.why IS NOT NULL AND {met.text} "
        "ORDER BY t.updated_at DESC, t.id DESC LIMIT ?",
        (*met.values, limit),
    )
    return [_TASK.read(row) for row in rows]


async def _within(query: Query, reach: Reach, *, own: TaskId | None) -> Condition:
    if reach.viewer is None:
        place = await within(query, reach, "t.session")
    else:  # a session sees its own tasks alone, however far it sees otherwise
        place = Condition("(t.session = ? OR t.id = ?)", (reach.viewer.session.row, own or ""))
    return all_of([place, flow("t.", reach.clearance)])


async def has_name(
    query: Query, session: SessionRow, name: str, clearance: Classification, *, besides: TaskId | None = None
) -> bool:
    """Whether another task of the session which flows to the clearance has that name and has not ended."""
    seen = flow("t.", clearance)
    row = await query.fetch_one(
        "SELECT 1 FROM tasks t WHERE t.session = ? AND t.name = ? AND t.state <> 'ended' AND t.id <> ? "
        f"AND {seen.text} LIMIT 1",
        (session, name, besides or "", *seen.values),
    )
    return row is not None


async def count_of(query: Query, maker: Principal) -> int:
    """How many tasks of that maker have not ended."""
    row = await query.fetch_one(
        "SELECT COUNT(*) FROM tasks t WHERE t.maker = ? AND t.state IN ('active', 'paused')", (str(maker),)
    )
    return 0 if row is None else int(row[0])


async def next_due(query: Query, after_ms: int) -> int | None:
    """When the next slot after that time comes, in milliseconds; None if there is none."""
    row = await query.fetch_one(
        f"SELECT next_at FROM tasks WHERE {_FIRES} AND next_at > ? ORDER BY next_at LIMIT 1", (after_ms,)
    )
    return None if row is None else int(row[0])


async def list_due(query: Query, now_ms: int, after: Due | None, limit: int) -> list[Due]:
    """Active tasks whose slot has come, the longest due first, beginning after that one."""
    start = (-1, "") if after is None else (after.next_at_ms, after.id)
    rows = await query.fetch_all(
        f"SELECT id, agent_id, next_at FROM tasks WHERE {_FIRES} AND next_at <= ? AND (next_at, id) > (?, ?) "
        "ORDER BY next_at, id LIMIT ?",
        (now_ms, *start, limit),
    )
    return [Due(TaskId(id), AgentId(agent), next_at) for id, agent, next_at in rows]


async def list_fired_after(query: Query, time_ms: int) -> list[TaskId]:
    """Active tasks with a slot to come that were changed, or fired last, after that time."""
    rows = await query.fetch_all(
        f"SELECT t.id FROM tasks t WHERE {_FIRES} AND (t.updated_at > ? OR EXISTS (SELECT 1 FROM task_slots s "
        "WHERE s.task = t.id AND s.slot_at = t.last_slot_at AND s.fired_at > ?)) ORDER BY t.id",
        (time_ms, time_ms),
    )
    return [TaskId(id) for (id,) in rows]


async def delete(tx: Transaction, id: TaskId) -> None:
    """Deletes the task with its slots and with what is allowed to it always; its session and its runs stay."""
    await tx.execute("DELETE FROM task_slots WHERE task = ?", (id,))
    await tx.execute("DELETE FROM standing_approvals WHERE task = ?", (id,))
    await tx.execute("DELETE FROM tasks WHERE id = ?", (id,))


async def delete_ended(tx: Transaction, maker: Principal, *, kept: int) -> None:
    """Deletes the maker's tasks that have ended, but for the newest ones."""
    found = await tx.fetch_all(
        "SELECT id FROM tasks WHERE maker = ? AND state = 'ended' ORDER BY updated_at DESC, id", (str(maker),)
    )
    for (id,) in found[kept:]:
        await delete(tx, TaskId(id))


async def delete_all_of_session(tx: Transaction, session: SessionRow) -> None:
    """Deletes the tasks that were made in the session."""
    for (id,) in await tx.fetch_all("SELECT id FROM tasks WHERE session = ?", (session,)):
        await delete(tx, TaskId(id))


async def insert_slot(tx: Transaction, slot: TaskSlot) -> bool:
    """False if the task had that slot before: it does not fire again."""
    inserted = await tx.change(
        f"INSERT INTO task_slots ({_SLOT.text}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (
            slot.task,
            codec.milliseconds(slot.slot_at),
            int(slot.is_manual),
            slot.run,
            slot.missed,
            None if slot.outcome is None else slot.outcome.value,
            None if slot.why is None else slot.why.value,
            codec.milliseconds(slot.fired_at),
            None if slot.ended_at is None else codec.milliseconds(slot.ended_at),
        ),
    )
    return inserted == 1


async def set_beside(tx: Transaction, task: TaskId, after: datetime) -> None:
    """Moves the slots after that time by a millisecond: a clock that was ahead had them, and now they come."""
    of_task, after_ms = "task = ? AND slot_at > ? AND is_manual = 0", codec.milliseconds(after)
    await tx.execute(f"UPDATE task_slots SET slot_at = slot_at + 1 WHERE {of_task}", (task, after_ms))
    statement = "UPDATE tasks SET last_slot_at = last_slot_at + 1 WHERE id = ? AND last_slot_at > ?"
    await tx.execute(statement, (task, after_ms))


async def end_slot(tx: Transaction, slot: TaskSlot, outcome: SlotOutcome, at_ms: int) -> None:
    await tx.execute(
        "UPDATE task_slots SET outcome = ?, ended_at = ? WHERE task = ? AND slot_at = ? AND is_manual = ?",
        (outcome.value, at_ms, slot.task, codec.milliseconds(slot.slot_at), int(slot.is_manual)),
    )


async def list_open_slots_in(query: Query, session: SessionRow) -> list[TaskSlot]:
    """The slots whose runs work in the session and have not ended."""
    rows = await query.fetch_all(
        f"{_SELECT_SLOT} WHERE outcome IS NULL AND run IN (SELECT id FROM runs WHERE session = ?)", (session,)
    )
    return [_SLOT.read(row) for row in rows]


async def find_slot_of(query: Query, run: RunId) -> TaskSlot | None:
    """The slot for which the run works."""
    row = await query.fetch_one(f"{_SELECT_SLOT} WHERE run = ?", (run,))
    return None if row is None else _SLOT.read(row)


async def find_open_slot(query: Query, task: TaskId) -> TaskSlot | None:
    """The slot of the task whose run has not ended."""
    row = await query.fetch_one(f"{_SELECT_SLOT} WHERE task = ? AND outcome IS NULL LIMIT 1", (task,))
    return None if row is None else _SLOT.read(row)


async def list_slots(query: Query, task: TaskId, limit: int) -> list[TaskSlot]:
    """The newest slots, newest first."""
    rows = await query.fetch_all(
        f"{_SELECT_SLOT} WHERE task = ? ORDER BY slot_at DESC, is_manual DESC LIMIT ?", (task, limit)
    )
    return [_SLOT.read(row) for row in rows]


async def forget_slots(tx: Transaction, task: TaskId, before: datetime) -> None:
    """Deletes slots older than that which have ended."""
    await tx.execute(
        "DELETE FROM task_slots WHERE task = ? AND slot_at < ? AND outcome IS NOT NULL",
        (task, codec.milliseconds(before)),
    )


class Used(NamedTuple):
    """What runs used."""

    tokens: int
    microusd: int


async def count_begun(query: Query, task: TaskId, since_ms: int, now_ms: int) -> int:
    """How many runs of the task were queued since that time; not those of a clock that was ahead."""
    row = await query.fetch_one(
        "SELECT COUNT(*) FROM task_slots WHERE task = ? AND run IS NOT NULL AND fired_at > ? AND fired_at <= ?",
        (task, since_ms, now_ms),
    )
    return 0 if row is None else int(row[0])


async def sum_used(query: Query, task: TaskId, since_ms: int) -> Used:
    """What the runs used that the task caused since that time, those of other sessions included."""
    row = await query.fetch_one(
        "SELECT COALESCE(SUM(input_tokens + output_tokens), 0), COALESCE(SUM(cost_microusd), 0) FROM runs "
        "WHERE task = ? AND created_at >= ?",
        (task, since_ms),
    )
    return Used(0, 0) if row is None else Used(int(row[0]), int(row[1]))


def _task(row: Row | None) -> StoredTask | None:
    return None if row is None else _TASK.read(row)
