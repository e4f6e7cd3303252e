"""The machine of tasks: each event in each state, and random lives in which no slot is doubled or unaccounted for."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from antiphon.domain.schedule import At, Cron, Every, Schedule, count_slots, next_slot, slots
from antiphon.domain.task import (
    BACKOFF,
    MOST_ERRORS,
    Around,
    Begin,
    MissedPolicy,
    Skip,
    SlotOutcome,
    Task,
    TaskLimits,
    TaskState,
    TellMaker,
    Why,
    on_due,
    on_ended,
    on_resumed,
)
from tests.claims import requirement

START = datetime(2026, 11, 24, 10, 0, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
HOURLY = Schedule(Every(3600, START), "UTC")
ONCE = Schedule(At(START + HOUR), "UTC")
KINDS = (
    HOURLY,
    Schedule(Cron("0 * * * *"), "Europe/Berlin"),
    Schedule(Cron("30 2 * * *"), "Europe/Berlin"),
    Schedule(Cron("*/7 * * * 1-5"), "Asia/Kolkata"),
    Schedule(Every(90 * 60, START), "UTC"),
)


def task(schedule: Schedule = HOURLY, **more: object) -> Task:
    return replace(Task(schedule=schedule, next_at=next_slot(schedule, START)), **more)


def around(now: datetime, **more: object) -> Around:
    return replace(Around(now=now, is_running=False, may_run=True), **more)


def test_a_slot_that_is_due_begins_a_run_and_the_next_one_is_set() -> None:
    step = on_due(task(), around(START + HOUR))
    assert step.actions == (Begin(START + HOUR, 0),)
    assert (step.task.next_at, step.task.runs) == (START + 2 * HOUR, 1)
    assert on_due(step.task, around(START + HOUR)).actions == ()


def test_slots_that_were_missed_make_one_run_that_is_told_how_many() -> None:
    step = on_due(task(), around(START + 5 * HOUR + 30 * MINUTE))
    assert step.actions == (Begin(START + HOUR, 5),)
    assert step.task.next_at == START + 6 * HOUR
    on_time = on_due(task(), around(START + 5 * HOUR + timedelta(seconds=20)))
    assert on_time.actions == (Begin(START + HOUR, 4),), "the fifth comes in time"


def test_missed_slots_are_noted_and_not_run_if_the_task_says_so() -> None:
    careful = task(missed=MissedPolicy.SKIP)
    late = on_due(careful, around(START + 5 * HOUR + 30 * MINUTE))
    assert late.actions == (Skip(START + HOUR, Why.MISSED, 5),)
    assert late.task.next_at == START + 6 * HOUR and late.task.runs == 0
    within = on_due(careful, around(START + 5 * HOUR + 9 * MINUTE))
    assert within.actions == (Begin(START + HOUR, 5),), "the newest is within the grace"


@pytest.mark.parametrize(
    ("limits", "seen", "why"),
    [
        (TaskLimits(), {"is_running": True}, Why.STILL_RUNNING),
        (TaskLimits(runs_an_hour=3), {"runs_this_hour": 3}, Why.HOURLY_RUNS),
        (TaskLimits(tokens_a_day=1000), {"tokens_today": 1000}, Why.DAILY_TOKENS),
        (TaskLimits(microusd_a_day=50), {"microusd_today": 51}, Why.DAILY_COST),
    ],
)
def test_a_slot_without_a_run_is_counted_and_the_task_goes_on(
    limits: TaskLimits, seen: dict[str, object], why: Why
) -> None:
    step = on_due(task(limits=limits), around(START + HOUR, **seen))
    assert step.actions == (Skip(START + HOUR, why, 0),)
    assert (step.task.state, step.task.next_at, step.task.runs) == (TaskState.ACTIVE, START + 2 * HOUR, 0)


def test_a_maker_who_lost_the_right_pauses_the_task_and_is_told() -> None:
    step = on_due(task(), around(START + HOUR, may_run=False))
    assert step.actions == (Skip(START + HOUR, Why.MAKER, 0), TellMaker(Why.MAKER))
    assert step.task.state is TaskState.PAUSED
    assert on_due(step.task, around(START + 9 * HOUR)).actions == ()


def test_errors_in_a_row_rest_longer_each_time_and_the_tenth_pauses() -> None:
    each_minute = task(Schedule(Every(60, START), "UTC"))
    now = START
    for number in range(1, MOST_ERRORS):
        step = on_due(each_minute, around(each_minute.next_at or now))
        now = (each_minute.next_at or now) + timedelta(seconds=5)
        each_minute = on_ended(step.task, SlotOutcome.ERROR, "", now).task
        rest = BACKOFF[min(number, len(BACKOFF)) - 1]
        assert each_minute.next_at is not None
        assert now + rest <= each_minute.next_at < now + rest + MINUTE
    last = on_ended(each_minute, SlotOutcome.ERROR, "", now)
    assert (last.task.state, last.actions) == (TaskState.PAUSED, (TellMaker(Why.ERRORS),))
    resumed = on_resumed(last.task, now + DAY).task
    assert (resumed.state, resumed.errors) == (TaskState.ACTIVE, 0)
    assert resumed.next_at is not None and resumed.next_at > now + DAY


def test_a_natural_slot_that_is_later_than_the_rest_stays() -> None:
    failed = on_ended(on_due(task(), around(START + HOUR)).task, SlotOutcome.ERROR, "", START + HOUR + MINUTE)
    assert failed.task.next_at == START + 2 * HOUR
    better = on_ended(failed.task, SlotOutcome.OK, "done", START + 2 * HOUR)
    assert better.task.errors == 0


def test_a_run_that_was_cut_counts_neither_as_good_nor_as_bad() -> None:
    failing = task(errors=3)
    recovered = on_ended(failing, SlotOutcome.RECOVERED, "", START + HOUR)
    assert recovered.task == failing and recovered.actions == ()


def test_a_task_for_one_time_ends_after_its_run_however_it_went() -> None:
    for outcome in (SlotOutcome.OK, SlotOutcome.ERROR, SlotOutcome.RECOVERED):
        begun = on_due(task(ONCE), around(START + HOUR))
        assert begun.task.next_at is None
        ended = on_ended(begun.task, outcome, "", START + 2 * HOUR)
        told = (TellMaker(Why.CUT_OFF),) if outcome is SlotOutcome.RECOVERED else ()
        assert (ended.task.state, ended.actions) == (TaskState.ENDED, told)
    skipped = on_due(task(ONCE, missed=MissedPolicy.SKIP), around(START + 5 * HOUR))
    assert skipped.task.state is TaskState.ENDED
    assert skipped.actions == (Skip(START + HOUR, Why.MISSED, 1), TellMaker(Why.MISSED))


@requirement("tasks:2", "groups:4")
def test_a_task_for_one_time_is_tried_again_as_long_as_its_run_made_no_step() -> None:
    step, now = on_due(task(ONCE), around(START + HOUR)), START + HOUR
    for number, wait in enumerate(BACKOFF, 1):
        failed = on_ended(step.task, SlotOutcome.ERROR, "", now, has_made_a_step=False)
        assert (failed.task.state, failed.task.next_at, failed.actions) == (TaskState.ACTIVE, now + wait, ())
        assert on_due(failed.task, around(now)).actions == ()
        now += wait
        step = on_due(failed.task, around(now))
        assert (step.actions, step.task.tries, step.task.runs) == ((Begin(now, 0),), number, 1)
    last = on_ended(step.task, SlotOutcome.ERROR, "", now, has_made_a_step=False)
    assert (last.task.state, last.task.next_at, last.actions) == (TaskState.ENDED, None, (TellMaker(Why.TRIES),))
    for outcome in (SlotOutcome.OK, SlotOutcome.ERROR):
        ended = on_ended(step.task, outcome, "", now)
        assert (ended.task.state, ended.task.tries, ended.actions) == (TaskState.ENDED, 0, ())


@requirement("tasks:2")
def test_a_slot_is_tried_again_until_the_next_one_comes_and_counts_once() -> None:
    step, now, tries = on_due(task(), around(START + HOUR)), START + HOUR, 0
    while (failed := on_ended(step.task, SlotOutcome.ERROR, "", now, has_made_a_step=False).task).errors == 0:
        assert failed.next_at is not None and failed.next_at < START + 2 * HOUR
        now, tries = failed.next_at, tries + 1
        step = on_due(failed, around(now))
        assert (step.actions, step.task.next_at) == ((Begin(now, 0),), START + 2 * HOUR)
    assert tries == 4  # after 30 s, 1, 5 and 15 min; 60 min later another slot has come
    assert (failed.next_at, failed.tries, failed.errors, failed.runs) == (START + 2 * HOUR, 0, 1, 1)
    limited = on_due(task(limits=TaskLimits(total_runs=1)), around(START + HOUR)).task
    again = on_ended(limited, SlotOutcome.ERROR, "", START + HOUR, has_made_a_step=False).task
    assert (again.state, again.runs) == (TaskState.ACTIVE, 0)


def test_a_paused_task_tries_nothing_again() -> None:
    begun = replace(on_due(task(ONCE), around(START + HOUR)).task, state=TaskState.PAUSED)
    assert on_ended(begun, SlotOutcome.ERROR, "", START + HOUR, has_made_a_step=False).task.state is TaskState.ENDED


def test_a_time_that_was_set_during_a_run_outlives_that_run() -> None:
    later = Schedule(At(START + 2 * HOUR), "UTC")
    for before in (HOURLY, ONCE):
        begun = on_due(task(before), around(START + HOUR)).task
        edited = replace(begun, schedule=later, next_at=START + 2 * HOUR)
        for outcome in (SlotOutcome.OK, SlotOutcome.RECOVERED, SlotOutcome.ERROR):
            # The last run ends so late that no time is left after the rest of an error.
            step = on_ended(edited, outcome, "", START + 2 * HOUR - timedelta(seconds=1))
            assert (step.task.state, step.task.next_at, step.actions) == (TaskState.ACTIVE, START + 2 * HOUR, ())
        (begin,) = on_due(edited, around(START + 2 * HOUR)).actions
        assert isinstance(begin, Begin)


def test_the_last_of_a_number_of_runs_and_the_words_to_stop_at_end_a_task() -> None:
    begun = on_due(task(limits=TaskLimits(total_runs=1, stop_text="DONE")), around(START + HOUR)).task
    assert on_ended(begun, SlotOutcome.OK, "all done", START + HOUR).actions == (TellMaker(Why.TOTAL_RUNS),)
    begun = on_due(task(limits=TaskLimits(stop_text="DONE")), around(START + HOUR)).task
    ended = on_ended(begun, SlotOutcome.OK, "all done", START + HOUR)
    assert (ended.task.state, ended.task.next_at, ended.actions) == (TaskState.ENDED, None, (TellMaker(Why.STOP_TEXT),))
    assert on_ended(begun, SlotOutcome.ERROR, "all done", START + HOUR).task.state is TaskState.ACTIVE


def test_a_limit_below_the_runs_that_were_ends_the_task_without_another_run() -> None:
    lowered = task(runs=3, limits=TaskLimits(total_runs=2))
    step = on_due(lowered, around(START + HOUR))
    assert (step.task.state, step.task.next_at, step.task.runs) == (TaskState.ENDED, None, 3)
    assert step.actions == (Skip(START + HOUR, Why.TOTAL_RUNS), TellMaker(Why.TOTAL_RUNS))


@pytest.mark.parametrize("state", [TaskState.PAUSED, TaskState.ENDED])
def test_a_task_that_is_not_active_never_fires(state: TaskState) -> None:
    resting = task(state=state)
    assert on_due(resting, around(START + DAY)) == on_due(resting, around(START))
    assert on_due(resting, around(START + DAY)).actions == ()
    if state is TaskState.ENDED:
        assert on_ended(resting, SlotOutcome.ERROR, "", START).task == resting
        assert on_resumed(resting, START).task == resting


@pytest.mark.parametrize("schedule", KINDS, ids=str)
@pytest.mark.parametrize("seed", range(8))
def test_no_slot_is_doubled_or_unaccounted_for_in_lives_with_stops_and_wrong_clocks(
    schedule: Schedule, seed: int, *, is_soak: bool
) -> None:
    """The scheduler sleeps, stops for hours, and its clock goes back; what it stores is the task after each step."""
    random_ = random.Random(seed)
    life, now = task(schedule), START
    fired: list[datetime] = []
    accounted = 0
    for _ in range(400 if is_soak else 100):
        now += random_.choice([MINUTE, 5 * MINUTE, HOUR, 7 * HOUR, 2 * DAY])
        if random_.random() < 0.1:
            now -= random_.choice([HOUR, DAY])
        step = on_due(life, around(now, is_running=random_.random() < 0.1))
        for action in step.actions:
            assert isinstance(action, Begin | Skip)
            fired.append(action.slot)
            assert step.task.next_at is not None and life.next_at is not None
            passed = 1 + count_slots(schedule, life.next_at, step.task.next_at - MINUTE)
            assert action.missed in (passed, passed - 1), "the newest was in time, or missed too"
            accounted += passed
        life = step.task
    assert fired == sorted(set(fired))
    assert life.next_at is not None
    every = count_slots(schedule, START, life.next_at - MINUTE)
    assert accounted == every or every == 1_000
    assert set(fired) <= set(_until(schedule, life.next_at))


def _until(schedule: Schedule, end: datetime) -> list[datetime]:
    found: list[datetime] = []
    for slot in slots(schedule, START):
        if slot > end:
            return found
        found.append(slot)
    return found
