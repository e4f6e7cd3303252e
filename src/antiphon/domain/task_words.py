"""Tasks and their slots as people read them."""

from collections.abc import Mapping
from datetime import datetime

from antiphon.domain.schedule import At, Schedule, in_words, shown_time, upcoming
from antiphon.domain.stored_task import StoredTask, TaskSlot
from antiphon.domain.task import BACKOFF, MOST_ERRORS, TaskState, Why

WHY: Mapping[Why, str] = {
    Why.STILL_RUNNING: "the previous run had not ended",
    Why.MISSED: "nothing ran at that time",
    Why.HOURLY_RUNS: "the runs of this hour are used up",
    Why.DAILY_TOKENS: "the tokens of this day are used up",
    Why.DAILY_COST: "the money of this day is used up",
    Why.TOTAL_RUNS: "all its runs are done",
    Why.STOP_TEXT: "a reply contained its stop text",
    Why.DONE: "its only run is done",
    Why.CUT_OFF: "a crash cut off its only run, which is not repeated",
    Why.TRIES: f"it was tried {1 + len(BACKOFF)} times, and failed each time before it did anything",
    Why.ERRORS: f"{MOST_ERRORS} runs in a row failed",
    Why.MAKER: "its maker may no longer do what it does",
    Why.PLACE: "what it is made of may no longer go where its results go",
}


PAUSING = frozenset({Why.ERRORS, Why.MAKER, Why.PLACE})
"""After these a task may be resumed."""


def schedule_words(schedule: Schedule, first: datetime | None) -> str:
    """When it fires, with its next times: `every hour. Next: Mon 2027-02-01 08:00 CET, …`."""
    if isinstance(schedule.trigger, At):
        return in_words(schedule)
    times = [shown_time(time, schedule.zone) for time in upcoming(schedule, first)]
    return f"{in_words(schedule)}. Next: {', '.join(times)}" if times else in_words(schedule)


def state_words(task: StoredTask) -> str:
    """`active`, or `paused: <why>`."""
    return task.state.value if task.why is None or task.state is TaskState.ACTIVE else f"{task.state}: {WHY[task.why]}"


def stopped_words(task: StoredTask, why: Why) -> str:
    """What its maker reads about a task that stopped by itself."""
    stopped = "paused" if why in PAUSING else "has ended"
    return f'Task "{task.name}" ({task.id}) {stopped}: {WHY[why]}.'


def slot_words(slot: TaskSlot, zone: str) -> str:
    """`Mon 2027-02-01 08:00 CET: ok (run_1)`."""
    outcome = "running" if slot.outcome is None else slot.outcome.value
    parts = [
        f"{shown_time(slot.slot_at, zone)}: {outcome}",
        "" if slot.why is None else f", {WHY[slot.why]}",
        f", {slot.missed} missed" if slot.missed else "",
        ", by hand" if slot.is_manual else "",
        "" if slot.run is None else f" ({slot.run})",
    ]
    return "".join(parts)
