"""What follows for a task when the run of one of its slots has ended, in the same unit. Contract: tasks 1, 2."""

from typing import NamedTuple

from msgspec import Struct

from antiphon.domain.ids import SessionRow
from antiphon.domain.message import AssistantMessage
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.send_to import SendToKind
from antiphon.domain.session import SessionStatus
from antiphon.domain.stored_task import StoredTask, TaskSlot
from antiphon.domain.task import SlotOutcome, TaskState, TellMaker, on_ended
from antiphon.engine.firings.notices import tell
from antiphon.policy.system import system_grant
from antiphon.store import events as log
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store import tasks
from antiphon.store.codec import milliseconds, moment
from antiphon.store.database import Query, SqlValue, Transaction

RECOVERED = "recovered"
"""The code of a task's run that had done nothing when its process died. It is not repeated."""


async def follow_task(tx: Transaction, run: Run) -> StoredTask | None:
    """Stores what became of the run's slot, and what the task does next.

    The run has ended and is not continued. If somebody began it by hand, the task goes on as it would have without it.
    Returns the task if its chat is to get the result: not of a run that was cancelled, or is tried again.
    """
    slot = await _slot_of(tx, run)
    if slot is None or slot.outcome is not None:
        return None
    outcome = _outcome(run)
    # A run that somebody cancelled is no failure of the task.
    counted = SlotOutcome.SKIPPED if run.status is RunStatus.CANCELLED else outcome
    has_made_a_step = counted is not SlotOutcome.ERROR or await _has_made_a_step(tx, run)
    ended = await _end_slot(tx, slot, _SlotEnd(outcome, counted, run.reply or "", has_made_a_step))
    if ended is None:
        return None
    if ended.task.state is TaskState.ENDED and ended.task.send_to is not SendToKind.LOG:
        hidden: dict[str, SqlValue] = {"status": SessionStatus.INACTIVE.value}
        await rows.update(tx, run.session, hidden)
    is_told = ended.task.send_to is SendToKind.CHAT and run.status is not RunStatus.CANCELLED
    return ended.task if is_told and not ended.is_tried_again else None


async def follow_deleted(tx: Transaction, session: SessionRow) -> None:
    """Ends the open slots of the session's runs, which are about to be deleted with it; no failure of their tasks."""
    for slot in await tasks.list_open_slots_in(tx, session):
        await _end_slot(tx, slot, _SlotEnd(SlotOutcome.ERROR, SlotOutcome.SKIPPED, ""))


class _EndedSlot(NamedTuple):
    task: StoredTask
    """As it is from now on."""
    is_tried_again: bool


class _SlotEnd(Struct, frozen=True):
    outcome: SlotOutcome
    counted: SlotOutcome
    """What it is for the task."""
    reply: str
    has_made_a_step: bool = True


async def _has_made_a_step(query: Query, run: Run) -> bool:
    """Whether the run, or the one that it continues, has stored what its model said, be it cut."""
    if run.continues is not None:
        return True
    events = await log.read_run(query, system_grant(run.session), run.id, from_seq=run.seq)
    return any(isinstance(event.message, AssistantMessage) for event in events)


async def _end_slot(tx: Transaction, slot: TaskSlot, end: _SlotEnd) -> _EndedSlot | None:
    """Stores the slot's outcome and what the task does next; None if the task was cancelled meanwhile."""
    await tasks.end_slot(tx, slot, end.outcome, tx.now_ms)
    if not await tasks.lock(tx, slot.task):
        return None
    task = await tasks.find(tx, slot.task)
    assert task is not None
    columns: dict[str, SqlValue] = {"last_outcome": end.outcome.value} if task.last_slot_at == slot.slot_at else {}
    if slot.is_manual:
        if columns:
            await tasks.change(tx, task.id, columns)
        return _EndedSlot(task, is_tried_again=False)
    step = on_ended(task, end.counted, end.reply, moment(tx.now_ms), has_made_a_step=end.has_made_a_step)
    columns |= tasks.step_columns(step.task, task, tx.now_ms)
    for action in step.actions:
        if isinstance(action, TellMaker):
            columns["why"] = action.why.value
            await tell(tx, task, action.why, cause=f"{milliseconds(slot.slot_at)}")
    await tasks.change(tx, task.id, columns)
    assert isinstance(step.task, StoredTask)
    return _EndedSlot(step.task, is_tried_again=step.task.tries > task.tries)


async def _slot_of(query: Query, run: Run) -> TaskSlot | None:
    """The slot of the run, or of the one whose work it continues."""
    found: Run | None = run
    while found is not None:
        if (slot := await tasks.find_slot_of(query, found.id)) is not None:
            return slot
        found = None if found.continues is None else await ledger.find(query, found.continues)
    return None


def _outcome(run: Run) -> SlotOutcome:
    if run.status is RunStatus.OK:
        return SlotOutcome.OK
    return SlotOutcome.RECOVERED if run.code == RECOVERED else SlotOutcome.ERROR
