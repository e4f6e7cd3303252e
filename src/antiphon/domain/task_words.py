"""Tasks and their slots as people read them."""

from collections.abc import Mapping
from datetime import datetime

from antiphon.domain.schedule import At, Schedule, in_words, shown_time, upcoming
from antiphon.domain.send_to import SendToKind, place_text
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
    Why.PLACE_GONE: "the place of its results was left or deleted, or is not its maker's any more",
    Why.NO_OWN_CHAT: "its maker has no chat with a bot, so its results stay in its log",
}


PAUSING = frozenset({Why.ERRORS, Why.MAKER, Why.PLACE, Why.PLACE_GONE})
"""After these a task may be resumed."""


def schedule_words(schedule: Schedule, first: datetime | None) -> str:
    """When it fires, with its next times: `every hour. Next: Mon 2027-02-01 08:00 CET, …`."""
    if isinstance(schedule.trigger, At):
        return in_words(schedule)
    times = [shown_time(time, schedule.zone) for time in upcoming(schedule, first)]
    return f"{in_words(schedule)}. Next: {', '.join(times)}" if times else in_words(schedule)


def state_words(task: StoredTask) -> str:
    """`active`, or `paused: <why>`."""
    is_silent = task.why is None or (task.state is TaskState.ACTIVE and task.why is not Why.NO_OWN_CHAT)
    return task.state.value if is_silent or task.why is None else f"{task.state}: {WHY[task.why]}"


_NEXT: Mapping[Why, str] = {
    Why.PLACE_GONE: "Give it another place (/task send, `antiphon tasks edit --send-to`, or the page), and resume it.",
    Why.NO_OWN_CHAT: "Write to a bot of this home and link the chat, or give the task another place.",
}


def stopped_words(task: StoredTask, why: Why) -> str:
    """What its maker reads about a task that stopped by itself, or whose results cannot reach them."""
    stopped = "goes on" if why is Why.NO_OWN_CHAT else "paused" if why in PAUSING else "has ended"
    said = f'Task "{task.name}" ({task.id}) {stopped}: {WHY[why]}.'
    return f"{said} {_NEXT[why]}" if why in _NEXT else said


def results_words(task: StoredTask) -> str:
    """Where its results go, as a person reads it."""
    match task.send_to:
        case SendToKind.CHAT if task.chat is None:
            return "the chat in which it was made"
        case SendToKind.CHAT:
            return f"the chat {task.chat_key or 'that was deleted'}"
        case SendToKind.ME:
            return "its maker's own chat on a channel"
        case SendToKind.PLACE if task.place is not None:
            return place_text(task.place)
        case _:
            return "its log only"


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
