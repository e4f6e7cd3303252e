"""The JSON of tasks and their slots. Contract: tasks 1, 2."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from antiphon.domain.schedule import At, Every, Schedule, in_words, shown_time, upcoming
from antiphon.domain.send_to import SendToKind
from antiphon.domain.stored_task import StoredTask, TaskSlot
from antiphon.domain.task import TaskLimits, TaskState
from antiphon.domain.task_words import WHY
from antiphon.domain.written_task import PreviewedTask
from antiphon.wire.encoding import Shape, milliseconds


class TriggerShape(Shape, frozen=True, kw_only=True):
    """When a task fires."""

    kind: str
    """`every`, `at` or `cron`."""
    seconds: int | None = None
    """Of `every`: the interval."""
    anchor: int | None = None
    """Of `every`: when the intervals begin."""
    time: int | None = None
    """Of `at`."""
    expression: str | None = None
    """Of `cron`: the five fields."""
    zone: str
    """As in the IANA database, such as `Europe/Berlin`."""
    words: str
    """As a person reads it."""


class TimeShape(Shape, frozen=True, kw_only=True):
    at: int
    shown: str
    """In the zone of the task: `Mon 2027-02-01 08:00 CET`."""


class TaskLimitsShape(Shape, frozen=True, kw_only=True):
    runs_an_hour: int | None = None
    tokens_a_day: int | None = None
    usd_a_day: float | None = None
    total_runs: int | None = None
    stop_text: str | None = None
    """The task ends once a reply contains it."""


class TaskPreview(Shape, frozen=True, kw_only=True):
    """What a new task would be."""

    name: str
    prompt: str
    send_to: str
    """Where results would go, if that place exists and is the maker's."""
    trigger: TriggerShape
    upcoming: Sequence[TimeShape]
    """Its next three times, or fewer if there are no more."""


class TaskShape(Shape, frozen=True, kw_only=True):
    task_id: str
    name: str
    prompt: str
    agent_id: str
    session_key: str
    """The session in which it was made."""
    key: str
    """The session in which its runs work."""
    maker: str
    """With whose present rights it acts."""
    maker_name: str | None = None
    trigger: TriggerShape
    upcoming: Sequence[TimeShape]
    """Its next three times, or fewer if there are no more."""
    state: str
    """`active`, `paused` or `ended`."""
    why: str | None = None
    """A code for why it paused or ended by itself."""
    reason: str | None = None
    """The same in words."""
    missed: str
    """`run` or `skip`."""
    grace_minutes: float
    context: str
    """`fresh`: each run begins a new conversation. `keep`: all runs share one."""
    consults: bool
    """Whether its runs may reach sessions of other agents, as far as the settings let any session."""
    send_to: str
    """Where results go: `chat` (the session in which it was made), `chat:<sessionKey>`, `me` (its maker's own chat on
    a channel), `log`, or `<channel>/<id>`."""
    delivers: bool
    """Whether results are sent to a chat on a channel; a session of `chat` may have one besides."""
    limits: TaskLimitsShape
    runs: int
    skips: int
    """Slots without a run."""
    errors: int
    """Failed runs in a row."""
    last_slot_at: int | None = None
    last_outcome: str | None = None
    """`ok`, `error`, `skipped` or `recovered`; absent while its run works."""
    version: int
    """Grows with each edit; name it to edit the task only if nobody else did meanwhile."""
    created_at: int
    updated_at: int


class TaskList(Shape, frozen=True, kw_only=True):
    count: int
    tasks: Sequence[TaskShape]


class TaskSlotShape(Shape, frozen=True, kw_only=True):
    """A time at which a task was due or run by hand, and what became of it."""

    task_id: str
    slot_at: int
    by_hand: bool
    run_id: str | None = None
    missed: int
    """How many slots this one stands for that came while nothing fired them."""
    outcome: str | None = None
    """`ok`, `error`, `skipped` or `recovered`; absent while its run works."""
    why: str | None = None
    """A code for why it has no run."""
    reason: str | None = None
    """The same in words."""
    fired_at: int
    ended_at: int | None = None


class TaskSlotList(Shape, frozen=True, kw_only=True):
    count: int
    runs: Sequence[TaskSlotShape]


def named_in(tasks: Iterable[StoredTask]) -> set[str]:
    """The principals whose names the shapes hold."""
    return {str(task.maker) for task in tasks}


def _upcoming(stored: StoredTask) -> Sequence[datetime]:
    """None for a paused task: it fires at none of these unless it is resumed."""
    return upcoming(stored.schedule, stored.next_at) if stored.state is TaskState.ACTIVE else ()


def task(stored: StoredTask, names: Mapping[str, str]) -> TaskShape:
    return TaskShape(
        task_id=stored.id,
        name=stored.name,
        prompt=stored.prompt,
        agent_id=stored.agent_id,
        session_key=stored.session_key,
        key=str(stored.key),
        maker=str(stored.maker),
        maker_name=names.get(str(stored.maker)),
        trigger=_trigger(stored.schedule),
        upcoming=_times(stored.schedule, _upcoming(stored)),
        state=stored.state.value,
        why=None if stored.why is None else stored.why.value,
        reason=None if stored.why is None else WHY[stored.why],
        missed=stored.missed.value,
        grace_minutes=stored.grace.total_seconds() / 60,
        context="keep" if stored.keeps_context else "fresh",
        consults=stored.may_consult,
        send_to=stored.written_send_to,
        delivers=stored.send_to is SendToKind.ME or stored.place is not None,
        limits=_limits(stored.limits),
        runs=stored.runs,
        skips=stored.skips,
        errors=stored.errors,
        last_slot_at=_moment(stored.last_slot_at),
        last_outcome=None if stored.last_outcome is None else stored.last_outcome.value,
        version=stored.version,
        created_at=milliseconds(stored.created_at),
        updated_at=milliseconds(stored.updated_at),
    )


def preview(previewed: PreviewedTask) -> TaskPreview:
    new = previewed.task
    return TaskPreview(
        name=new.name,
        prompt=new.prompt,
        send_to=new.send_to.text,
        trigger=_trigger(new.schedule),
        upcoming=_times(new.schedule, previewed.upcoming),
    )


def slot(each: TaskSlot) -> TaskSlotShape:
    return TaskSlotShape(
        task_id=each.task,
        slot_at=milliseconds(each.slot_at),
        by_hand=each.is_manual,
        run_id=each.run,
        missed=each.missed,
        outcome=None if each.outcome is None else each.outcome.value,
        why=None if each.why is None else each.why.value,
        reason=None if each.why is None else WHY[each.why],
        fired_at=milliseconds(each.fired_at),
        ended_at=_moment(each.ended_at),
    )


def _moment(time: datetime | None) -> int | None:
    return None if time is None else milliseconds(time)


def _trigger(schedule: Schedule) -> TriggerShape:
    trigger, zone, words = schedule.trigger, schedule.zone, in_words(schedule)
    if isinstance(trigger, Every):
        anchor = milliseconds(trigger.anchor)
        return TriggerShape(kind="every", seconds=trigger.seconds, anchor=anchor, zone=zone, words=words)
    if isinstance(trigger, At):
        return TriggerShape(kind="at", time=milliseconds(trigger.time), zone=zone, words=words)
    return TriggerShape(kind="cron", expression=trigger.expression, zone=zone, words=words)


def _times(schedule: Schedule, times: Iterable[datetime]) -> list[TimeShape]:
    return [TimeShape(at=milliseconds(time), shown=shown_time(time, schedule.zone)) for time in times]


def _limits(limits: TaskLimits) -> TaskLimitsShape:
    return TaskLimitsShape(
        runs_an_hour=limits.runs_an_hour,
        tokens_a_day=limits.tokens_a_day,
        usd_a_day=None if limits.microusd_a_day is None else limits.microusd_a_day / 1_000_000,
        total_runs=limits.total_runs,
        stop_text=limits.stop_text,
    )
