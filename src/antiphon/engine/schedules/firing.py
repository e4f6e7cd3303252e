"""A task fires: its slot, its session and its run, in one unit. Contract: tasks 1, keys 7."""

from datetime import timedelta
from typing import NamedTuple

from msgspec.structs import replace

from antiphon.domain.actor import SYSTEM
from antiphon.domain.ids import MessageId, RunId, SessionId, TaskId
from antiphon.domain.message import Provenance, ProvenanceKind, UserMessage, text_content
from antiphon.domain.run import Purpose
from antiphon.domain.schedule import Every
from antiphon.domain.session import HERE, NOWHERE, DeliveryContext, Session, Source
from antiphon.domain.stored_task import StoredTask, TaskSlot, session_id_of
from antiphon.domain.targets import NamedTarget
from antiphon.domain.task import Around, Begin, Skip, SlotOutcome, TellMaker, Why, on_clock_back, on_due, prompt_of
from antiphon.engine.access.ceilings import find_place_clearance
from antiphon.engine.firings.notices import tell
from antiphon.engine.ledger.append import NewMessage
from antiphon.engine.ledger.queue import new_run_id, queue_run
from antiphon.engine.rules import Rules
from antiphon.engine.schedules.destinations import FoundPlace, find_place
from antiphon.engine.sessions.resets import begin_anew, decide_reset
from antiphon.engine.sessions.sessions import OpenSession, SessionAttributes, create_session
from antiphon.policy.decision import Allow
from antiphon.policy.exit import takes
from antiphon.policy.flow import classify_message, is_public
from antiphon.policy.rights import may_open
from antiphon.policy.standing import Standing
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store import tasks
from antiphon.store.codec import json_text, milliseconds, place_columns
from antiphon.store.database import Query, SqlValue, Transaction
from antiphon.store.people import find_standing
from antiphon.store.runs import NewRun

HOUR_MS = 3_600_000
KEPT = timedelta(days=90)
"""How long slots are kept."""


async def fire_due(tx: Transaction, task_id: TaskId, rules: Rules) -> bool:
    """Does what is due of the task; False if nothing is, because another process was faster or somebody paused it."""
    task = await lock_task(tx, task_id)
    if task is None:
        return False
    standing = await find_standing(tx, task.maker)
    session = await rows.find_by_key(tx, task.key)
    found = await find_place(tx, task, standing, rules)
    around = Around(
        now=tx.now,
        is_running=await is_running(tx, task, session),
        may_run=may_fire(task, standing, rules),
        may_leave=await may_leave(tx, task, found.place, rules),
        has_place=not found.is_gone,
    )
    step = on_due(task, await with_use(tx, task, around))
    if step.task == task and not step.actions:
        return False
    columns = tasks.step_columns(step.task, task, tx.now_ms)
    for action in step.actions:
        match action:
            case Begin(slot, missed):
                run_id = new_run_id(tx)
                due = TaskSlot(task=task.id, slot_at=slot, missed=missed, fired_at=tx.now, run=run_id)
                if not await tasks.insert_slot(tx, due):
                    # It fired before the clock went back, or before the task was resumed.
                    columns = {"next_at": columns["next_at"]}
                    break
                columns |= {"last_slot_at": milliseconds(slot), "last_outcome": None}
                begun = TaskRun(run_id, MessageId(tx.new_id("msg")), found, missed=missed)
                columns |= await begin_run(tx, task, standing, session, begun=begun, rules=rules)
                await tasks.forget_slots(tx, task.id, tx.now - KEPT)
            case Skip(slot, why, missed):
                outcome, now = SlotOutcome.SKIPPED, tx.now
                skipped = TaskSlot(task=task.id, slot_at=slot, missed=missed, fired_at=now)
                if await tasks.insert_slot(tx, replace(skipped, outcome=outcome, why=why, ended_at=now)):
                    columns |= {"skips": task.skips + max(missed, 1)}
                    columns |= {"last_slot_at": milliseconds(slot), "last_outcome": outcome.value}
            case TellMaker(why):
                columns["why"] = why.value
                cause = "" if task.next_at is None else str(milliseconds(task.next_at))
                await tell(tx, task, why, cause=cause)
    await tasks.change(tx, task.id, columns)
    return True


async def set_right(tx: Transaction, task_id: TaskId) -> None:
    """Brings back the next slot of a task that fired while the clock was ahead.

    A time of a calendar fires once, and has fired. Of an interval, the slots further ahead than it come again.
    """
    task = await lock_task(tx, task_id)
    if task is None or (right := on_clock_back(task, tx.now)) == task:
        return
    if isinstance(right.schedule.trigger, Every):
        await tasks.set_beside(tx, task.id, tx.now + right.schedule.trigger.interval)
    columns = tasks.step_columns(right, task, milliseconds(tx.now))
    await tasks.change(tx, task.id, columns | {"schedule": json_text(right.schedule)})


async def lock_task(tx: Transaction, id: TaskId) -> StoredTask | None:
    """The task, which no other unit changes until this one has committed."""
    return await tasks.find(tx, id) if await tasks.lock(tx, id) else None


async def may_leave(query: Query, task: StoredTask, place: DeliveryContext | None, rules: Rules) -> bool:
    """Whether the place may have what the task is made of; otherwise its prompt would be left out. Contract: flow 2."""
    agent = rules.agents.get(task.agent_id)
    made_of = task.made_of if agent is None else task.made_of.join(agent.classification)
    if is_public(made_of):
        return True
    return takes(await find_place_clearance(query, rules.sinks, place), made_of)


async def with_use(query: Query, task: StoredTask, around: Around) -> Around:
    """With what the task's runs used, as far as it has limits for that."""
    limits = task.limits
    if limits.runs_an_hour is not None:
        around = replace(
            around, runs_this_hour=await tasks.count_begun(query, task.id, query.now_ms - HOUR_MS, query.now_ms)
        )
    if limits.tokens_a_day is not None or limits.microusd_a_day is not None:
        used = await tasks.sum_used(query, task.id, query.now_ms - query.now_ms % ledger.DAY_MS)
        around = replace(around, tokens_today=used.tokens, microusd_today=used.microusd)
    return around


async def is_running(query: Query, task: StoredTask, session: Session | None) -> bool:
    """Whether a run of the task, or another one of its session, has not ended."""
    if await tasks.find_open_slot(query, task.id) is not None:
        return True
    return session is not None and await ledger.is_busy(query, session.row)


def may_fire(task: StoredTask, standing: Standing, rules: Rules) -> bool:
    """Whether the maker may do now what the task does. Contract: tasks 1."""
    return task.agent_id in rules.agents and may_open(standing, task.agent_id, rules.user_agents)


class TaskRun(NamedTuple):
    """The ids of a task's run and of its message."""

    run_id: RunId
    message_id: MessageId
    found: FoundPlace
    """Where its result goes."""
    may_repeat: bool = False
    """Whether somebody may ask for the run again under that id."""
    missed: int = 0
    """Slots before this one that did not fire."""


async def begin_run(
    tx: Transaction, task: StoredTask, standing: Standing, session: Session | None, *, begun: TaskRun, rules: Rules
) -> dict[str, SqlValue]:
    """Queues the task's run in its session, with the maker's present rights; returns the task's columns that change.

    A maker without a chat of their own is told so once.
    """
    place = begun.found.place
    if session is not None and session.delivery != (place or NOWHERE):
        await rows.update(tx, session.row, place_columns(place or NOWHERE))
        session = await rows.find_by_row(tx, session.row)
        assert session is not None
    if session is None:
        session = await _create(tx, replace(task, place=place), standing, rules)
    elif not task.keeps_context and isinstance(
        await decide_reset(tx, session, rules, actor=SYSTEM, reason="task"), Allow
    ):
        session = await begin_anew(tx, session, rules, actor=SYSTEM, reason="task")
    message = UserMessage(
        message_id=begun.message_id,
        content=text_content(prompt_of(task.prompt, begun.missed)),
        provenance=Provenance(kind=ProvenanceKind.SCHEDULE),
    )
    words = NewMessage(
        message=message,
        actor=str(standing.principal),
        classification=classify_message(standing, task.made_of),
        is_addressed=begun.may_repeat,
    )
    run = NewRun(
        id=begun.run_id,
        purpose=Purpose.TASK,
        incarnation=SessionId(session.id),
        agent_id=task.agent_id,
        principal=standing.principal,
        place=place or HERE,
        task=task.id,
        is_sandboxed=task.is_sandboxed,
    )
    await queue_run(tx, session, words, run)
    return await _note_own_chat(tx, task, begun)


async def _note_own_chat(tx: Transaction, task: StoredTask, begun: TaskRun) -> dict[str, SqlValue]:
    if begun.found.lacks_chat == (task.why is Why.NO_OWN_CHAT):
        return {}
    if not begun.found.lacks_chat:
        return {"why": None}
    await tell(tx, task, Why.NO_OWN_CHAT, cause=begun.run_id)
    return {"why": Why.NO_OWN_CHAT.value}


async def _create(tx: Transaction, task: StoredTask, standing: Standing, rules: Rules) -> Session:
    opening = OpenSession(
        principal=standing.principal,
        target=NamedTarget(task.key, session_id_of(task.id)),
        agent_id=task.agent_id,
        base=rules.agent(task.agent_id).classification,
        source=Source(kind="schedule", interactive=False, trigger_id=task.id),
        attributes=SessionAttributes(label=task.name if is_public(task.made_of) else None),
        place=task.place or NOWHERE,
    )
    return await create_session(tx, opening, standing)
