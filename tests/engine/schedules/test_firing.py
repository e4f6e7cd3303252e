"""Tasks fire at their slots: once each, with their makers' present rights, whatever happens. Contract: tasks 1, 2."""

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.classification import OF_INTEGRITY, PUBLIC, Integrity
from antiphon.domain.event import EventType
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.domain.message import ProvenanceKind, UserMessage, text_content
from antiphon.domain.person import PersonRole
from antiphon.domain.run import Purpose, RunStatus
from antiphon.domain.schedule import At, Cron, Schedule, Trigger, parse_cron, parse_every
from antiphon.domain.session import DeliveryContext, SessionStatus
from antiphon.domain.stored_task import StoredTask, TaskEdit
from antiphon.domain.task import BACKOFF, MOST_ERRORS, MissedPolicy, SlotOutcome, TaskLimits, TaskState, Why
from antiphon.domain.telling import Cause, sentence
from antiphon.engine.ledger.fence import Claimant
from antiphon.engine.runs import lifecycle
from antiphon.engine.schedules.scheduler import Scheduler
from antiphon.feed.local import LocalNotifier
from antiphon.store import tasks
from antiphon.store.database import Transaction
from antiphon.wire import tasks as wire
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import START, HeldRunner, ManualClock, find_run
from tests.engine.tasks_bench import HOUR, Bench, bench, own_session, person, refused
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
PLACE = DeliveryContext(channel=NAME, to="owner")


@requirement("tasks:1", "keys:7", "events:1")
async def test_each_slot_fires_once_in_an_incarnation_of_its_own(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        task = await b.make("!say done", every="1h")
        assert (task.state, task.next_at, task.agent_id) == (TaskState.ACTIVE, START + HOUR, "main")
        await b.passes(59 * MINUTE)
        assert await b.slots(task) == []
        for _ in range(3):
            await b.passes(20 * MINUTE)
            await b.passes(40 * MINUTE)
        assert await b.outcomes(task) == [(hour, SlotOutcome.OK) for hour in (1, 2, 3)]
        assert (await b.tasks.get(OWNER, task.id)).runs == 3
        log = await b.events(task)
        assert [event.type for event in log].count(EventType.SESSION_STARTED) == 3
        started = {event.session_id for event in log}
        assert len(started) == 3 and all(id.startswith("schedule:") for id in started)
        (asked, *_) = [event.message for event in log if isinstance(event.message, UserMessage)]
        assert asked.provenance.kind is ProvenanceKind.SCHEDULE
        run = await find_run(b.app, (await b.slots(task))[0].run)
        assert (run.principal, run.purpose, run.task, run.reply) == (OWNER, Purpose.TASK, task.id, "done")
        session = (await b.app.services.sessions.get(OWNER, b.target(str(task.key)))).session
        assert (session.source.kind, session.source.trigger_id, session.label) == ("schedule", task.id, task.name)


@requirement("tasks:1")
async def test_a_task_that_keeps_its_context_has_one_incarnation(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        task = await b.make(keeps_context=True)
        for _ in range(3):
            await b.passes(HOUR)
        assert len({event.session_id for event in await b.events(task)}) == 1
        assert len(await b.prompts(task)) == 3


@requirement("tasks:1")
async def test_after_five_hours_down_one_run_says_that_five_were_missed_or_none_runs(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with bench(open_home, clock=clock) as b:
        task = await b.make("!say up", every="1h", name="run")
        skipping = await b.make("!say up", every="1h", name="skip", missed=MissedPolicy.SKIP)
    clock.pass_time(5 * HOUR + 20 * MINUTE)
    async with bench(open_home, clock=clock) as b:
        await b.passes(timedelta(0))
        assert await b.prompts(task) == ["!say up\n\n[5 missed: this run stands for all of them.]"]
        assert await b.outcomes(task) == [(1, SlotOutcome.OK)]
        (slot,) = await b.slots(skipping)
        assert (slot.outcome, slot.why, slot.missed, slot.run) == (SlotOutcome.SKIPPED, Why.MISSED, 5, None)
        assert (await b.tasks.get(OWNER, skipping.id)).skips == 5
        await b.passes(40 * MINUTE)
        assert await b.outcomes(task) == [(1, SlotOutcome.OK), (6, SlotOutcome.OK)]
        assert await b.outcomes(skipping) == [(1, SlotOutcome.SKIPPED), (6, SlotOutcome.OK)]


@requirement("tasks:1")
async def test_a_slot_whose_predecessor_still_runs_is_skipped_and_counted(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with bench(open_home, parts={"runner": runner}) as b:
        task = await b.make(every="1h")
        b.clock.pass_time(HOUR)
        await b.app.scheduler.settle_due()
        await runner.until_begun(1)
        b.clock.pass_time(HOUR)
        await b.app.scheduler.settle_due()
        assert await b.outcomes(task) == [(1, None), (2, SlotOutcome.SKIPPED)]
        assert await refused(b.tasks.run(OWNER, task.id)) == "task_running"
        runner.release_all()
        await b.passes(HOUR)
        assert await b.outcomes(task) == [(1, SlotOutcome.OK), (2, SlotOutcome.SKIPPED), (3, SlotOutcome.OK)]
        assert (await b.tasks.get(OWNER, task.id)).skips == 1


@requirement("tasks:1")
@pytest.mark.parametrize("back", [HOUR, timedelta(days=1)])
async def test_a_slot_does_not_fire_again_after_the_clock_went_back(open_home: OpenHome, back: timedelta) -> None:
    async with bench(open_home) as b:
        task = await b.make(trigger=parse_cron("*/30 * * * *", "UTC", b.clock.now()))
        for _ in range(4):
            await b.passes(30 * MINUTE)
        b.clock.step(-back)
        await b.app.scheduler.settle_due()
        # Another schedule begins now; its slots of the time that comes again have fired already.
        await b.tasks.pause(OWNER, task.id)
        await b.tasks.resume(OWNER, task.id)
        for _ in range(back // (30 * MINUTE) + 2):
            await b.passes(30 * MINUTE)
        fired = [hours for hours, _ in await b.outcomes(task)]
        first = 2 - back / HOUR
        assert fired == sorted({*(0.5, 1, 1.5, 2), *(first + half / 2 for half in range(1, int(2 * (3 - first)) + 1))})
        assert len(await b.prompts(task)) == len(fired)


@requirement("tasks:1")
async def test_two_schedulers_fire_each_slot_once(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        app, made = b.app, [await b.make(name=f"t{number}", every="1h") for number in range(5)]
        others = [Scheduler(app.database, LocalNotifier(), app.services.rules, clock=b.clock) for _ in range(3)]
        for _ in range(3):
            b.clock.pass_time(HOUR)
            async with anyio.create_task_group() as tasks:
                for scheduler in (app.scheduler, *others):
                    tasks.start_soon(scheduler.settle_due)
            await b.rests()
        for task in made:
            assert await b.outcomes(task) == [(hour, SlotOutcome.OK) for hour in (1, 2, 3)]
            assert len(await b.prompts(task)) == 3


@requirement("tasks:2")
async def test_errors_back_off_and_ten_in_a_row_pause_the_task_and_tell_its_maker(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with bench(open_home, parts={"channels": [channel]}) as b:
        task = await b.make("!call session_status {}\n!fail", every="1m", place=PLACE)
        waits: list[timedelta] = []
        for _ in range(MOST_ERRORS):
            due = (await b.tasks.get(OWNER, task.id)).next_at
            assert due is not None
            await b.passes(due - b.clock.now())
            after = await b.tasks.get(OWNER, task.id)
            if after.next_at is not None and after.state is TaskState.ACTIVE:
                waits.append(after.next_at - b.clock.now())
        # The first slot after the rest: each is a whole minute.
        assert waits == [max(rest, MINUTE) for rest in (*BACKOFF, *[BACKOFF[-1]] * 4)]
        paused = await b.tasks.get(OWNER, task.id)
        assert (paused.state, paused.why, paused.errors) == (TaskState.PAUSED, Why.ERRORS, MOST_ERRORS)
        assert paused.updated_at == b.clock.now(), "home shows what paused last first"
        await channel.until_asked(1)
        with anyio.fail_after(SECONDS):
            await b.app.deliverer.wait_idle()
        *_, told = channel.texts
        assert "paused: 10 runs in a row failed" in told
        assert channel.texts[:-1] == [sentence(Cause.AWAY, None)], "of the errors themselves it is told once"
        resumed = await b.tasks.resume(OWNER, task.id)
        assert (resumed.state, resumed.errors, resumed.why) == (TaskState.ACTIVE, 0, None)


@requirement("tasks:2", "groups:4")
async def test_a_task_for_one_time_is_tried_again_and_its_maker_is_told_in_its_place(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with bench(open_home, parts={"channels": [channel]}) as b:
        task = await b.make("!fail", trigger=At(START + HOUR), place=PLACE)
        await b.passes(HOUR)
        for number, rest in enumerate(BACKOFF, 1):
            waiting = await b.tasks.get(OWNER, task.id)
            assert (waiting.state, waiting.next_at) == (TaskState.ACTIVE, b.clock.now() + rest)
            assert len(await b.slots(task)) == number
            await b.passes(rest)
        ended = await b.tasks.get(OWNER, task.id)
        assert (ended.state, ended.why, ended.runs) == (TaskState.ENDED, Why.TRIES, 1)
        with anyio.fail_after(SECONDS):
            await b.app.deliverer.wait_idle()
        away, last = channel.texts
        assert away == sentence(Cause.AWAY, None) and "has ended: it was tried 6 times" in last
        works = await b.make("!say done", trigger=At(b.clock.now() + HOUR), place=PLACE, name="Works")
        await b.passes(HOUR)
        assert (await b.tasks.get(OWNER, works.id)).state is TaskState.ENDED and len(await b.slots(works)) == 1


@requirement("tasks:1")
async def test_a_run_that_did_nothing_before_its_process_died_is_not_begun_again(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with bench(open_home, parts={"runner": runner}) as b:
        task = await b.make()
        b.clock.pass_time(HOUR)
        await b.app.scheduler.settle_due()
        await runner.until_begun(1)
        run = await find_run(b.app, runner.begun[0])
        assert run.process is not None
        # What the next process does that finds the run unfinished.
        claimant = Claimant(process=run.process, time_limits={AgentId("main"): None})
        assert await b.app.database.run(lifecycle.claim, SessionRow(run.session), claimant) is None
        ended = await find_run(b.app, run.id)
        assert (ended.status, ended.code) == (RunStatus.ERROR, "recovered")
        assert await b.outcomes(task) == [(1, SlotOutcome.RECOVERED)]
        runner.release_all()


@requirement("tasks:2")
async def test_a_failed_run_by_hand_leaves_the_task_as_it_was(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        task = await b.make("!fail", every="1h")
        await b.tasks.run(OWNER, task.id)
        await b.rests()
        assert [(slot.is_manual, slot.outcome) for slot in await b.slots(task)] == [(True, SlotOutcome.ERROR)]
        after = await b.tasks.get(OWNER, task.id)
        assert (after.state, after.next_at, after.errors) == (TaskState.ACTIVE, task.next_at, 0)


@requirement("tasks:1", "access:1")
@pytest.mark.parametrize("loss", ["demoted", "suspended", "agent"])
async def test_a_task_whose_maker_lost_the_right_pauses_and_owners_are_told(open_home: OpenHome, loss: str) -> None:
    async with bench(open_home) as b:
        mum = await person(b, "mum")
        task = await b.make(by=mum, session=await own_session(b, mum))
        await b.passes(HOUR)
        people = b.app.services.people
        if loss == "demoted":
            await people.change_role(OWNER, mum.name, PersonRole.GUEST)
        elif loss == "suspended":
            await people.suspend(OWNER, mum.name)
        else:
            await b.app.database.run(_take_agents, mum.name)
        await b.passes(HOUR)
        paused = await b.tasks.get(OWNER, task.id)
        assert (paused.state, paused.why) == (TaskState.PAUSED, Why.MAKER)
        assert paused.updated_at == b.clock.now()
        assert await b.outcomes(task) == [(1, SlotOutcome.OK), (2, SlotOutcome.SKIPPED)]
        assert [event.data["code"] for event in await b.events(task) if event.type == EventType.ERROR] == ["task_maker"]
        assert await refused(b.tasks.run(OWNER, task.id)) == "task_maker"
        await b.passes(HOUR)
        assert len(await b.slots(task)) == 2


async def _take_agents(tx: Transaction, person: str) -> None:
    await tx.execute("UPDATE people SET agents = '' WHERE id = ?", (person,))


@requirement("tasks:1", "access:1")
async def test_a_task_acts_with_the_rights_that_its_maker_has_when_it_fires(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        mum = await person(b, "mum", PersonRole.OWNER)
        task = await b.make(by=mum, session="main")
        await b.passes(HOUR)
        await b.app.services.people.change_role(OWNER, mum.name, PersonRole.USER)
        await b.passes(HOUR)
        said = [event.classification for event in await b.events(task) if isinstance(event.message, UserMessage)]
        assert said == [PUBLIC, OF_INTEGRITY[Integrity.USER]]


@requirement("tasks:2", "sessions:2")
async def test_a_task_for_one_time_ends_after_its_run_and_its_session_is_hidden(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        task = await b.make(trigger=At(START + HOUR))
        by_hand = await b.tasks.run(OWNER, task.id)
        await b.rests()
        await b.passes(HOUR)
        ended = await b.tasks.get(OWNER, task.id)
        assert (ended.state, ended.next_at, ended.why) == (TaskState.ENDED, None, None)
        assert [slot.is_manual for slot in await b.slots(task)] == [False, True] and by_hand.is_manual
        session = (await b.app.services.sessions.get(OWNER, b.target(str(task.key)))).session
        assert session.status is SessionStatus.INACTIVE
        assert await refused(b.tasks.resume(OWNER, task.id)) == "task_ended"
        assert await refused(b.tasks.run(OWNER, task.id)) == "task_ended"


@requirement("tasks:2")
async def test_a_single_time_that_is_moved_while_its_run_works_comes(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with bench(open_home, parts={"runner": runner}) as b:
        task = await b.make(trigger=At(b.clock.now() + HOUR))
        b.clock.pass_time(HOUR)
        await b.app.scheduler.settle_due()
        await runner.until_begun(1)
        later = At(b.clock.now() + HOUR)
        await b.tasks.edit(OWNER, task.id, TaskEdit(schedule=Schedule(later, "UTC")))
        runner.release_all()
        await b.rests()
        moved = await b.tasks.get(OWNER, task.id)
        assert (moved.state, moved.next_at) == (TaskState.ACTIVE, later.time)
        await b.passes(HOUR)
        assert await b.outcomes(task) == [(1, SlotOutcome.OK), (2, SlotOutcome.OK)]
        assert (await b.tasks.get(OWNER, task.id)).state is TaskState.ENDED


@requirement("tasks:2")
async def test_limits_skip_runs_or_end_the_task(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        hourly = await b.make(every="10m", name="hourly", limits=TaskLimits(runs_an_hour=3))
        stops = await b.make("!say all done", every="10m", name="stops", limits=TaskLimits(stop_text="DONE"))
        total = await b.make(every="10m", name="total", limits=TaskLimits(total_runs=2))
        spends = await b.make(every="10m", name="spends", limits=TaskLimits(tokens_a_day=1))
        for _ in range(5):
            await b.passes(10 * MINUTE)
        assert [slot.why for slot in reversed(await b.slots(hourly))] == [None] * 3 + [Why.HOURLY_RUNS] * 2
        ended = [await b.tasks.get(OWNER, task.id) for task in (stops, total)]
        assert [(task.state, task.why, task.runs) for task in ended] == [
            (TaskState.ENDED, Why.STOP_TEXT, 1),
            (TaskState.ENDED, Why.TOTAL_RUNS, 2),
        ]
        assert [slot.why for slot in reversed(await b.slots(spends))] == [None] + [Why.DAILY_TOKENS] * 4
        for task in (hourly, spends):
            assert await refused(b.tasks.run(OWNER, task.id)) == "task_limit"
        await b.passes(30 * MINUTE)
        assert (await b.slots(hourly))[0].why is None


@requirement("tasks:2")
async def test_cancel_removes_the_task_and_not_the_run_in_progress(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with bench(open_home, parts={"runner": runner}) as b:
        task = await b.make()
        b.clock.pass_time(HOUR)
        await b.app.scheduler.settle_due()
        await runner.until_begun(1)
        await b.tasks.cancel(OWNER, task.id)
        assert await refused(b.tasks.get(OWNER, task.id)) == "not_found"
        runner.release_all()
        await b.rests()
        run = await b.app.services.runs.get(OWNER, runner.begun[0])
        assert run.status is RunStatus.OK
        await b.passes(3 * HOUR)
        assert len(runner.begun) == 1


@requirement("tasks:1", "groups:3")
async def test_the_result_goes_to_the_place_of_the_task_and_a_silent_one_nowhere(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with bench(open_home, parts={"channels": [channel]}) as b:
        await b.make("!say <NO_REPLY>", name="silent", place=PLACE)
        await b.make("!say kept", name="kept")
        await b.make("!say news", name="loud", place=PLACE)
        await b.passes(HOUR)
        await channel.until_asked(1)
        await b.passes(HOUR)
        await channel.until_asked(2)
        assert [asked.text for asked in channel.asked] == ["news", "news"]


@requirement("tasks:1")
async def test_known_defects_of_peers_are_not_here(open_home: OpenHome) -> None:
    """Fires at a restart in another zone, skips a day after a restart at noon, fires again half an hour later."""
    clock = ManualClock(datetime(2026, 3, 3, 23, tzinfo=UTC))
    zone = "America/Los_Angeles"  # 15:00 there
    async with bench(open_home, clock=clock) as b:
        task = await b.make(trigger=parse_cron("0 8 * * *", zone, clock.now()), zone=zone)
    fired: list[int] = []
    # Noon there, half past eight, and all hours of the night in between: each time after a restart.
    for hours in (4, 4, 4, 5.5, 0.5, 3, 3, 12, 5.5, 0.5):
        clock.pass_time(timedelta(hours=hours))
        async with bench(open_home, clock=clock) as b:
            await b.passes(timedelta(0))
            fired.append(len(await b.slots(task)))
    assert fired == [0, 0, 0, 1, 1, 1, 1, 1, 2, 2]


@requirement("approvals:4", "visibility:3")
async def test_a_task_consults_other_agents_only_once_an_owner_approved_it(open_home: OpenHome) -> None:
    settings: dict[str, Any] = {
        "agents__list": [{"id": "main"}, {"id": "botanist"}],
        "tools__sessions__visibility": "all",
        "tools__agent_to_agent__enabled": True,
    }
    async with bench(open_home, **settings) as b:
        await b.app.services.inbox.post(OWNER, b.target("agent:botanist:main"), text_content("!say hello"))
        await b.rests()
        ask = '!call sessions_send {"sessionKey": "agent:botanist:main", "message": "!say twice a week"}'
        task = await b.make(ask)
        await b.passes(HOUR)
        assert "not_found" in await _reply(b, task)
        await b.tasks.approve(OWNER, task.id)
        await b.passes(HOUR)
        assert "twice a week" in await _reply(b, task)


async def _reply(b: Bench, task: StoredTask) -> str:
    return (await find_run(b.app, (await b.slots(task))[0].run)).reply or ""


@requirement("tasks:1")
@pytest.mark.parametrize(
    "schedule", ['{"trigger": {"kind": "cron", "expression": "0 * * * *"}, "zone": "Mars/Base"}', "{"]
)
async def test_a_task_that_cannot_be_read_does_not_hold_up_the_others(open_home: OpenHome, schedule: str) -> None:
    async with bench(open_home) as b:
        broken, task = await b.make(name="broken", every="30m"), await b.make()
        await b.app.database.run(_break, broken.id, schedule)
        await b.passes(HOUR)
        assert await b.outcomes(task) == [(1, SlotOutcome.OK)]


@requirement("tasks:1")
async def test_a_task_whose_zone_is_not_known_any_more_is_seen_and_its_run_ends(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        task = await b.make("!fail", trigger=Cron("* * * * *"), zone="Europe/Berlin")
        await b.app.database.run(tasks.change, task.id, {"errors": 3})  # so that it rests beyond its next slot
        b.clock.pass_time(HOUR)
        assert await b.app.scheduler.fire(task.id)
        await b.app.database.run(_break, task.id, GONE)
        await b.rests()
        assert [slot.outcome for slot in await b.slots(task)] == [SlotOutcome.ERROR]
        shown = wire.task(await b.tasks.get(OWNER, task.id), {})
        assert [time.shown[-3:] for time in shown.upcoming] == ["UTC"]
        await b.tasks.pause(OWNER, task.id)
        assert await refused(b.tasks.resume(OWNER, task.id)) == "invalid_zone"
        there = Schedule(Cron("* * * * *"), "UTC")
        await b.tasks.edit(OWNER, task.id, TaskEdit(schedule=there))
        assert (await b.tasks.resume(OWNER, task.id)).state is TaskState.ACTIVE


GONE = '{"trigger": {"kind": "cron", "expression": "* * * * *"}, "zone": "Mars/Base"}'


@requirement("tasks:1")
@pytest.mark.parametrize("missed", MissedPolicy)
async def test_a_task_that_fired_while_the_clock_was_far_ahead_goes_on_once_it_is_right(
    open_home: OpenHome, missed: MissedPolicy
) -> None:
    async with bench(open_home) as b:
        task = await b.make(missed=missed)
        unreadable = await b.make(name="unreadable", trigger=Cron("* * * * *"))
        await b.passes(timedelta(days=3650))
        await b.app.database.run(_break, unreadable.id, GONE)
        assert (await b.tasks.get(OWNER, task.id)).next_at == START + timedelta(days=3650) + HOUR
        await b.passes(2 * HOUR - timedelta(days=3650))
        assert (await b.tasks.get(OWNER, task.id)).next_at == START + 3 * HOUR
        await b.passes(HOUR)
        assert (await b.outcomes(task))[-1] == (3, SlotOutcome.OK)


@requirement("tasks:1")
async def test_a_task_that_was_made_while_the_clock_was_far_ahead_fires_once_it_is_right(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        await b.passes(timedelta(days=3650))
        task = await b.make()
        await b.passes(-timedelta(days=3650))
        assert (await b.tasks.get(OWNER, task.id)).next_at == START + HOUR
        await b.passes(HOUR)
        assert await b.outcomes(task) == [(1, SlotOutcome.OK)]


MINUTES = {
    "made before": (timedelta(0), parse_every("1m", START)),
    "made ahead": (2 * HOUR, parse_every("1m", START + 2 * HOUR)),
    "cron": (timedelta(0), Cron("* * * * *")),
}


@requirement("tasks:1")
@pytest.mark.parametrize("case", MINUTES)
async def test_a_task_of_every_minute_fires_within_a_minute_once_a_clock_that_ran_ahead_is_right(
    open_home: OpenHome, case: str
) -> None:
    ahead, trigger = MINUTES[case]
    async with bench(open_home) as b:
        b.clock.step(ahead)
        task = await b.make(trigger=trigger, limits=TaskLimits(runs_an_hour=41))
        b.clock.step(2 * HOUR - ahead)
        for _ in range(3):
            await b.passes(MINUTE)
        before = len(await b.prompts(task))
        assert before > 1
        b.clock.step(-2 * HOUR)
        await b.app.scheduler.settle_due()
        for _ in range(40):
            await b.passes(MINUTE)
        assert len(await b.prompts(task)) == before + 40


@requirement("tasks:1")
async def test_an_interval_fires_at_each_of_its_times_although_the_wrong_clock_had_them(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        task = await b.make(every="1m")
        b.clock.step(HOUR)
        for _ in range(60):
            await b.passes(MINUTE)
        before = len(await b.prompts(task))
        b.clock.step(-HOUR)
        await b.app.scheduler.settle_due()
        for _ in range(90):
            await b.passes(MINUTE)
        assert len(await b.prompts(task)) == before + 90


@requirement("tasks:1")
async def test_an_interval_does_not_fire_twice_because_the_clock_went_back_by_less(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        task = await b.make(every="1d")
        await b.passes(24 * HOUR)
        b.clock.step(-HOUR)
        await b.app.scheduler.settle_due()
        for _ in range(24):
            await b.passes(HOUR)
        assert len(await b.prompts(task)) == 1
        await b.passes(HOUR)
        assert len(await b.prompts(task)) == 2


@requirement("tasks:2")
@pytest.mark.parametrize("trigger", [parse_every("1d", START), At(START + 30 * HOUR)], ids=["every", "at"])
async def test_a_slot_that_is_tried_again_waits_for_its_back_off_once_the_clock_is_right(
    open_home: OpenHome, trigger: Trigger
) -> None:
    async with bench(open_home) as b:
        task = await b.make("!fail away", trigger=trigger)
        b.clock.step(30 * HOUR)
        await b.passes(timedelta(0))
        tried = await b.tasks.get(OWNER, task.id)
        assert tried.next_at == b.clock.now() + timedelta(seconds=30)
        b.clock.step(-3 * HOUR)
        await b.app.scheduler.settle_due()
        waiting = await b.tasks.get(OWNER, task.id)
        assert waiting.next_at == b.clock.now() + timedelta(seconds=30)
        await b.tasks.edit(OWNER, task.id, TaskEdit(prompt="!say done"))
        await b.passes(timedelta(seconds=30))
        assert (await b.slots(task))[-1].outcome is not None
        done = await b.tasks.get(OWNER, task.id)
        assert SlotOutcome.OK in [slot.outcome for slot in await b.slots(task)]
        if isinstance(trigger, At):
            assert (done.state, done.next_at) == (TaskState.ENDED, None)
        else:
            assert done.state is TaskState.ACTIVE and done.next_at is not None
            assert done.next_at <= b.clock.now() + timedelta(days=1)


async def _break(tx: Transaction, id: str, schedule: str) -> None:
    await tx.execute("UPDATE tasks SET schedule = ? WHERE id = ?", (schedule, id))
