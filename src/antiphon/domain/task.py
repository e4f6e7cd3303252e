"""A task that fires at its slots, as a pure machine: what happens when one is due, and when its run has ended.

Contract: tasks 1, 2. The engine looks around, asks here, and carries out the step in one unit.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.schedule import At, Every, Schedule, Trigger, count_slots, is_known, next_slot

ON_TIME = timedelta(minutes=1)
"""A slot that begins this late at most was not missed."""
BACKOFF = (
    timedelta(seconds=30),
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=15),
    timedelta(minutes=60),
)
"""How long a task rests after so many errors in a row; the last one for all further ones."""
MOST_ERRORS = 10
"""Errors in a row after which the task pauses."""


class TaskState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    """Fires again once it is resumed."""
    ENDED = "ended"
    """Never fires again."""


class Why(StrEnum):
    """Why a task pauses or ends, or why a slot has no run."""

    STILL_RUNNING = "already_running"
    MISSED = "missed"
    HOURLY_RUNS = "run_budget"
    DAILY_TOKENS = "token_budget"
    DAILY_COST = "cost_budget"
    TOTAL_RUNS = "total_runs"
    STOP_TEXT = "stop_text"
    DONE = "done"
    """A task for one time has had its run."""
    CUT_OFF = "cut_off"
    """A crash cut off the run of a task for one time."""
    TRIES = "tries"
    """A task for one time was tried again as often as it may be, and each run failed before its first step."""
    ERRORS = "errors"
    MAKER = "maker"
    """Its maker no longer has the right to do what the task does."""
    PLACE = "place_clearance"
    """What it is made of may no longer go to the place of its results."""
    PLACE_GONE = "place_gone"
    """The place of its results was left or deleted, or is not its maker's any more."""
    NO_OWN_CHAT = "no_own_chat"
    """Its maker, to whom its results go, has no chat with a bot: they stay in its log. It goes on."""


class MissedPolicy(StrEnum):
    """What becomes of slots that came while nothing fired them."""

    RUN = "run"
    """One run for all of them, with their number."""
    SKIP = "skip"
    """No run, if the newest slot is older than the grace."""


class SlotOutcome(StrEnum):
    """What became of a slot."""

    OK = "ok"
    ERROR = "error"
    SKIPPED = "skipped"
    RECOVERED = "recovered"
    """Its run had begun when the process died, and had done nothing; it is not repeated."""


class TaskLimits(Struct, frozen=True, kw_only=True):
    """None for no limit."""

    runs_an_hour: int | None = None
    tokens_a_day: int | None = None
    microusd_a_day: int | None = None
    total_runs: int | None = None
    stop_text: str | None = None
    """The task ends once a reply contains it."""


class Task(Struct, frozen=True, kw_only=True):
    """The part of a task that decides when it fires."""

    schedule: Schedule
    next_at: datetime | None
    """The slot that fires next; None once there is none."""
    state: TaskState = TaskState.ACTIVE
    missed: MissedPolicy = MissedPolicy.RUN
    grace: timedelta = timedelta(minutes=10)
    limits: TaskLimits = TaskLimits()
    errors: int = 0
    """In a row."""
    tries: int = 0
    """How often the newest slot was tried again."""
    runs: int = 0
    """That began, in all; of a slot that is tried again, the last one."""


class Around(Struct, frozen=True, kw_only=True):
    """What the engine sees around a task whose slot is due."""

    now: datetime
    is_running: bool
    """Whether the run of an earlier slot has not ended."""
    may_run: bool
    """Whether its maker may do now what the task does."""
    may_leave: bool = True
    """Whether what it is made of may go to the place of its results."""
    has_place: bool = True
    """Whether that place is there, and still its maker's."""
    runs_this_hour: int = 0
    tokens_today: int = 0
    microusd_today: int = 0


class Begin(Struct, frozen=True):
    """Queue a run for the slot."""

    slot: datetime
    missed: int
    """How many slots came before, or with it, while nothing fired them."""


class Skip(Struct, frozen=True):
    """Store that the slot has no run."""

    slot: datetime
    why: Why
    missed: int = 0


class TellMaker(Struct, frozen=True):
    """Tell the maker that the task paused or ended; the owner too if the maker lost rights."""

    why: Why


Action = Begin | Skip | TellMaker


class TaskStep(Struct, frozen=True):
    """What the task becomes, and what is to be done, in this order."""

    task: Task
    actions: tuple[Action, ...] = ()


def prompt_of(prompt: str, missed: int) -> str:
    """What the agent reads, with the number of slots that the run stands for if some were missed."""
    return prompt if not missed else f"{prompt}\n\n[{missed} missed: this run stands for all of them.]"


def on_due(task: Task, around: Around) -> TaskStep:
    """The slot `next_at` has come. Nothing happens for a task that is not active, or whose slot lies ahead."""
    slot, now = task.next_at, around.now
    if task.state is not TaskState.ACTIVE or slot is None or slot > now:
        return TaskStep(task)
    later = count_slots(task.schedule, slot, now)
    newest = slot if not later else _newest(task.schedule, slot, now)
    missed = later + (now - newest > ON_TIME)
    ahead = replace(task, next_at=next_slot(task.schedule, now))
    why = _lost(around)
    if why is not None:
        return TaskStep(replace(ahead, state=TaskState.PAUSED), (Skip(slot, why, missed), TellMaker(why)))
    if task.missed is MissedPolicy.SKIP and now - newest > task.grace:
        return _without_run(ahead, Skip(slot, Why.MISSED, missed))
    why = find_obstacle(task.limits, around)
    if why is not None:
        return _without_run(ahead, Skip(slot, why, missed))
    if _has_had_all(task):  # somebody lowered the limit after its last run
        ended = replace(ahead, state=TaskState.ENDED, next_at=None)
        return TaskStep(ended, (Skip(slot, Why.TOTAL_RUNS, missed), TellMaker(Why.TOTAL_RUNS)))
    return TaskStep(replace(ahead, runs=task.runs + 1), (Begin(slot, missed),))


def _lost(around: Around) -> Why | None:
    """Why the task may not go on until somebody has seen to it."""
    if not around.may_run:
        return Why.MAKER
    if not around.has_place:
        return Why.PLACE_GONE
    return None if around.may_leave else Why.PLACE


def on_ended(task: Task, outcome: SlotOutcome, reply: str, at: datetime, *, has_made_a_step: bool = True) -> TaskStep:
    """The run of a slot has ended at that time; `reply` is empty unless it went well."""
    if task.state is TaskState.ENDED:
        return TaskStep(task)
    if outcome is SlotOutcome.ERROR and not has_made_a_step and (again := _tried_again(task, at)) is not None:
        return TaskStep(again)
    was_tried, task = task.tries > 0 and not has_made_a_step, replace(task, tries=0)
    errors = task.errors + 1 if outcome is SlotOutcome.ERROR else task.errors
    task = replace(task, errors=0 if outcome is SlotOutcome.OK else errors)
    why = _ending(task, outcome, reply)
    if why is Why.DONE and was_tried and outcome is SlotOutcome.ERROR:
        why = Why.TRIES
    if why is not None:
        return TaskStep(
            replace(task, state=TaskState.ENDED, next_at=None), (TellMaker(why),) if why is not Why.DONE else ()
        )
    if task.errors >= MOST_ERRORS and task.state is TaskState.ACTIVE:
        return TaskStep(replace(task, state=TaskState.PAUSED), (TellMaker(Why.ERRORS),))
    if outcome is SlotOutcome.ERROR:
        return TaskStep(_rested(task, at))
    return TaskStep(task)


def on_resumed(task: Task, now: datetime) -> TaskStep:
    """A paused task goes on with the slots after now; those of the pause were not missed."""
    if task.state is not TaskState.PAUSED:
        return TaskStep(task)
    following = next_slot(task.schedule, now)
    state = TaskState.ENDED if following is None else TaskState.ACTIVE
    return TaskStep(replace(task, state=state, errors=0, tries=0, next_at=following))


def on_clock_back(task: Task, now: datetime) -> Task:
    """The clock was ahead when the task was made or fired last, and is right again: the slot after now is next.

    An interval that was counted from a time to come is counted from now. A slot that is tried again waits for its own
    back-off, counted from now.
    """
    if task.state is not TaskState.ACTIVE or task.next_at is None:
        return task
    schedule = replace(task.schedule, trigger=_come_back(task, now))
    following = next_slot(schedule, now + _rest(task))
    times = [task.next_at] if following is None else [task.next_at, following]
    if task.tries:
        times.append(now + BACKOFF[task.tries - 1])
    return replace(task, schedule=schedule, next_at=min(times))


def _come_back(task: Task, now: datetime) -> Trigger:
    match task.schedule.trigger:
        case Every(seconds, anchor) if anchor > now:
            return Every(seconds, now)
        case At(time) if time > now and task.tries:
            return At(now)  # it has come, and does not come again
        case trigger:
            return trigger


def find_obstacle(limits: TaskLimits, around: Around) -> Why | None:
    """Why there is no run now, although the task goes on."""
    if around.is_running:
        return Why.STILL_RUNNING
    if limits.runs_an_hour is not None and around.runs_this_hour >= limits.runs_an_hour:
        return Why.HOURLY_RUNS
    if limits.tokens_a_day is not None and around.tokens_today >= limits.tokens_a_day:
        return Why.DAILY_TOKENS
    if limits.microusd_a_day is not None and around.microusd_today >= limits.microusd_a_day:
        return Why.DAILY_COST
    return None


def _newest(schedule: Schedule, slot: datetime, now: datetime) -> datetime:
    """The last slot up to now, looked for in ever longer times back from now."""
    back = ON_TIME
    while True:
        start = max(now - back, slot)
        if count_slots(schedule, start, now) or start == slot:
            break
        back *= 4
    newest = slot if start == slot else start
    following = next_slot(schedule, newest)
    while following is not None and following <= now:
        newest, following = following, next_slot(schedule, following)
    return newest


def _without_run(task: Task, skipped: Skip) -> TaskStep:
    """A task for one time ends with its slot, even if that slot had no run."""
    if task.next_at is None:
        return TaskStep(replace(task, state=TaskState.ENDED), (skipped, TellMaker(skipped.why)))
    return TaskStep(task, (skipped,))


def _ending(task: Task, outcome: SlotOutcome, reply: str) -> Why | None:
    limits = task.limits
    if isinstance(task.schedule.trigger, At) and task.next_at is None:  # otherwise it got that time during the run
        return Why.CUT_OFF if outcome is SlotOutcome.RECOVERED else Why.DONE
    if _has_had_all(task):
        return Why.TOTAL_RUNS
    if outcome is SlotOutcome.OK and limits.stop_text and limits.stop_text.casefold() in reply.casefold():
        return Why.STOP_TEXT
    return None


def _has_had_all(task: Task) -> bool:
    return task.limits.total_runs is not None and task.runs >= task.limits.total_runs


def _tried_again(task: Task, ended_at: datetime) -> Task | None:
    """The task, whose slot is tried again; None if it was often enough, or if the next slot comes first."""
    if task.state is not TaskState.ACTIVE or task.tries >= len(BACKOFF):
        return None
    again_at = ended_at + BACKOFF[task.tries]
    if task.next_at is not None and task.next_at <= again_at:
        return None
    return replace(task, next_at=again_at, tries=task.tries + 1, runs=max(task.runs - 1, 0))


def _rested(task: Task, ended_at: datetime) -> Task:
    """The next slot is the first one after the rest that the errors ask for, unless none comes after it.

    It stays as it is if the zone is not known any more: nothing else can be counted, and the run has ended.
    """
    earliest = ended_at + _rest(task)
    if task.next_at is None or task.next_at >= earliest or not is_known(task.schedule.zone):
        return task
    return replace(task, next_at=next_slot(task.schedule, earliest - timedelta(seconds=1)) or task.next_at)


def _rest(task: Task) -> timedelta:
    return BACKOFF[min(task.errors, len(BACKOFF)) - 1] if task.errors else timedelta(0)
