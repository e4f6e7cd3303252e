"""Sessions that wait for children, or work for others, and are deleted or reset meanwhile: no result is lost."""

from datetime import timedelta
from typing import Any

import pytest

from antiphon.building import Parts
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.ids import RunId
from antiphon.domain.run import RunStatus
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import YIELD, to_spawn, wait_at
from tests.engine.slots import skip_where_slots_stay
from tests.engine.stage import ManualClock
from tests.story import NESTED, Character, Story, telling

pytestmark = pytest.mark.anyio

SHORT: dict[str, Any] = {"gateway__drain_seconds": 0.1}
"""For tests that leave work behind."""


async def until_announced(story: Story, count: int) -> list[tuple[str | None, str]]:
    """Where and what was sent, once there is so much and all is quiet."""
    await story.settles()
    sent = [(each.place.to, each.text) for each in await story.deliveries()]
    assert len(sent) == count, sent
    return sent


# Deleted requesters.


async def wait_three_deep(story: Story, boss: Character) -> RunId:
    """The boss waits for a child, that one for its own, and that for a leaf at a gate."""
    leaf = to_spawn(wait_at("leaf", "leaf words"), label="leaf")
    sub: dict[str, Any] = {"task": f"{leaf}\n!say sub waits", "label": "sub", "model": "offline"}
    model = story.script(
        [{"calls": [{"name": "sessions_spawn", "arguments": sub}]}, {"calls": [{"name": "sessions_yield"}]}],
        [{"calls": [{"name": "gate", "arguments": {"name": "mid goes on"}}]}, {"text": "mid done"}],
        [{"text": "mid has heard the leaf"}],
    )
    run = await boss.hears(to_spawn("go", label="mid", model=model), YIELD)
    await story.comes_to("leaf")
    await story.until(lambda runs: sum(run.is_parked for run in runs) == 3)
    return run


async def without_the_middle(story: Story, boss: Character) -> RunId:
    """The boss's run that waits, once the session between the leaf and its grandparent is gone."""
    run = await wait_three_deep(story, boss)
    (mid,) = await boss.children()
    (sub,) = await mid.children()
    await story.deletes(sub)
    await story.comes_to("mid goes on")
    return run


@requirement("spawn:7", "sessions:7")
async def test_who_inherits_a_child_waits_for_it_before_it_reports_itself(open_home: OpenHome) -> None:
    async with telling(open_home, **NESTED) as story:
        boss = await story.opens("boss")
        waiting = await without_the_middle(story, boss)
        (mid,) = await boss.children()
        story.opens_gate("mid goes on")
        await mid.parks()
        story.opens_gate("leaf")
        assert (await story.end_of(waiting)).reply == "echo: mid has heard the leaf"
        assert [record.result for record in await boss.records()] == ["mid has heard the leaf"]
        assert [record.result for record in await mid.records()][1:] == ["leaf words"]


@requirement("spawn:8", "sessions:7")
async def test_who_cancels_the_top_cancels_what_was_inherited_below(open_home: OpenHome) -> None:
    async with telling(open_home, **NESTED) as story:
        boss = await story.opens("boss")
        waiting = await without_the_middle(story, boss)
        await story.cancels(waiting)
        await story.settles()
        ended = [run for run in await story.runs() if run.status is not RunStatus.OK]
        assert {run.status for run in ended} == {RunStatus.CANCELLED}
        assert len(ended) == 3, "the boss's, its child's and the leaf's"


@requirement("spawn:7", "sessions:7")
@pytest.mark.parametrize("state", ["parked", "queued"])
async def test_a_channel_hears_that_its_child_was_deleted(open_home: OpenHome, state: str) -> None:
    channel = FakeChannel()
    slots: dict[str, Any] = {"runs__max_concurrent": 1} if state == "queued" else SHORT
    async with telling(open_home, Parts(channels=[channel]), **NESTED, **slots) as story:
        boss = await story.opens("boss")
        await boss.speaks_at("room", NAME)
        other = await story.opens("other")
        if state == "parked":
            task = f"{to_spawn('!sleep 60', label='leaf')}\n{YIELD}"
            await boss.answers(to_spawn(task, label="mid"), "!say started")
            (mid,) = await boss.children()
            await mid.parks()
        else:
            asked = await boss.hears(wait_at("boss"), to_spawn("!say x", label="mid"), "!say started")
            await story.comes_to("boss")
            await other.hears(wait_at("other"))
            story.opens_gate("boss")
            await story.end_of(asked)
            await story.comes_to("other")
        (mid,) = await boss.children()
        await story.deletes(mid)
        story.opens_gate("other")
        newest, *_ = await boss.runs()
        await story.end_of(newest.id)
        assert ("room", "echo: (no output)") in [(each.place.to, each.text) for each in await story.deliveries()]
        (record,) = await boss.records()
        assert "Status: error: The session was deleted." in record.text


@requirement("spawn:7", "sessions:7")
async def test_what_was_inherited_is_told_where_its_spawner_was_to_report(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with telling(open_home, Parts(channels=[channel]), **NESTED) as story:
        boss = await story.opens("boss")
        await boss.speaks_at("room one", NAME)
        task = f"{to_spawn(wait_at('leaf', 'leaf words'), label='leaf')}\n{YIELD}"
        await boss.answers(to_spawn(task, label="mid"), "!say started")
        await story.comes_to("leaf")
        (mid,) = await boss.children()
        await mid.parks()
        await boss.speaks_at("room two", NAME)
        await story.deletes(mid)
        story.opens_gate("leaf")
        assert {to for to, _ in await until_announced(story, 3)} == {"room one"}


@requirement("spawn:7", "tools:1")
async def test_what_was_inherited_from_outside_starts_nothing_either(open_home: OpenHome) -> None:
    async with telling(open_home, **NESTED) as story:
        boss = await story.opens("boss")
        task = f"{to_spawn(wait_at('leaf', 'leaf words'), label='leaf')}\n{YIELD}"
        await boss.spawns(task, label="mid")
        await story.comes_to("leaf")
        (mid,) = await boss.children()
        await mid.parks()
        await story.deletes(mid)
        story.opens_gate("leaf")
        await story.settles()
        assert [record.result for record in await boss.records()] == ["(no output)", "leaf words"]
        assert await boss.runs() == []


@requirement("spawn:4", "spawn:7", "sessions:7")
@pytest.mark.parametrize("cleanup", ["keep", "delete"])
async def test_a_result_that_came_to_a_deleted_session_goes_to_its_requester(open_home: OpenHome, cleanup: str) -> None:
    async with telling(open_home, **NESTED) as story:
        boss = await story.opens("boss")
        quick = to_spawn(wait_at("quick", "quick result"), label="quick", cleanup=cleanup)
        slow = to_spawn(wait_at("slow", "slow result"), label="slow", cleanup=cleanup)
        task = f"{quick}\n{slow}\n{YIELD}"
        await boss.answers(to_spawn(task, label="mid"), "!say started")
        (mid,) = await boss.children()
        await mid.parks()
        story.opens_gate("quick")
        await story.until(lambda runs: any(run.reply == "quick result" for run in runs))
        await story.deletes(mid)
        story.opens_gate("slow")
        found = await story.sees(boss.records, lambda found: len(found) == 3)
        assert [record.result for record in found] == ["(no output)", "quick result", "slow result"]
        await story.settles()
        answers = {run.reply for run in await story.runs()}
        assert {"echo: quick result", "echo: slow result"} <= answers


@requirement("spawn:7", "sessions:7")
async def test_a_result_that_came_to_a_deleted_session_without_a_requester_is_kept(open_home: OpenHome) -> None:
    async with telling(open_home, **NESTED, **SHORT) as story:
        boss = await story.opens("boss")
        quick = to_spawn(wait_at("quick", "quick result"), label="quick", cleanup="delete")
        await boss.hears(quick, to_spawn("!sleep 60", label="slow"), YIELD)
        await boss.parks()
        story.opens_gate("quick")
        await story.until(lambda runs: any(run.reply == "quick result" for run in runs))
        await story.deletes(boss)
        assert await story.kept() == ["quick result"]


# Resets.


@requirement("sessions:6", "spawn:8")
async def test_a_reset_ends_a_run_that_waits_for_an_earlier_ones_child(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        await boss.answers(to_spawn(wait_at("first", "one")), "!say started")
        waiting = await boss.hears(YIELD)
        await boss.parks()
        old = await story.resets(boss)
        ended = await story.end_of(waiting)
        assert (ended.status, ended.code) == (RunStatus.CANCELLED, "reset")
        story.opens_gate("first")
        await story.settles()
        (record,) = await boss.records()
        assert (record.result, record.has_run, record.session_id) == ("one", False, old)


@requirement("sessions:6", "spawn:7")
async def test_a_conversation_is_not_over_while_its_news_are_worded(open_home: OpenHome) -> None:
    channel, clock = FakeChannel(), ManualClock()
    reset = {"mode": "idle", "idle_minutes": 60}
    async with telling(open_home, Parts(channels=[channel], clock=clock), session__reset=reset) as story:
        boss = await story.opens("boss")
        await boss.speaks_at("room", NAME)
        work = [{"calls": [{"name": "gate", "arguments": {"name": "work"}}]}, {"text": "42"}]
        words = [{"calls": [{"name": "gate", "arguments": {"name": "words"}}]}, {"text": "It is 42."}]
        model = story.script(work, words)
        await boss.answers(to_spawn("go", model=model), "!say started")
        await story.comes_to("work")
        clock.pass_time(timedelta(hours=2))
        story.opens_gate("work")
        await story.comes_to("words")
        await boss.answers("any news?")
        story.opens_gate("words")
        assert ("room", "It is 42.") in await until_announced(story, 3)


@requirement("sessions:6", "spawn:7")
async def test_work_of_a_staying_child_belongs_to_the_conversation_in_which_it_began(open_home: OpenHome) -> None:
    channel, clock = FakeChannel(), ManualClock()
    async with telling(open_home, Parts(channels=[channel], clock=clock)) as story:
        boss = await story.opens("boss")
        await boss.speaks_at("room", NAME)
        await boss.answers(to_spawn("!say ready", mode="session"), "!say started")
        await story.settles()
        (helper,) = await boss.children()
        earlier = await helper.hears(wait_at("earlier", "for the old one"))
        await story.comes_to("earlier")
        clock.pass_time(timedelta(minutes=1))
        old = await story.resets(boss)
        clock.pass_time(timedelta(minutes=1))
        story.opens_gate("earlier")
        await story.end_of(earlier)
        await helper.answers("!say for the new one")
        await story.settles()
        current = await boss.session()
        found = {record.result: record.session_id for record in await boss.records()}
        assert (found["for the old one"], found["for the new one"]) == (old, current.id)
        assert {text for _, text in await until_announced(story, 3)} == {"started", "ready", "for the new one"}


@requirement("spawn:7")
async def test_a_result_that_is_worded_for_a_deleted_session_goes_to_its_requester(open_home: OpenHome) -> None:
    async with telling(open_home, Parts(channels=[FakeChannel()]), **NESTED) as story:
        boss = await story.opens("boss")
        mid = await boss.spawns("!say ready", label="mid")
        await story.settles()
        await mid.speaks_at("the room", NAME)
        model = story.script(
            [{"text": "leaf words"}],
            [{"calls": [{"name": "gate", "arguments": {"name": "wording"}}]}, {"text": "worded"}],
        )
        await mid.answers(to_spawn("go", label="leaf", model=model))
        await story.comes_to("wording")
        await story.deletes(mid)
        story.opens_gate("wording")
        await story.settles()
        told = [record.result for record in await boss.records()]
        assert "leaf words" in told, (told, await story.kept(), [each.text for each in await story.deliveries()])


@requirement("spawn:7")
@pytest.mark.parametrize("then", ["!say spawned", YIELD], ids=["answered", "continued"])
@pytest.mark.parametrize("has_heir", [False, True])
async def test_a_result_whose_answer_was_queued_outlives_its_requester(
    open_home: OpenHome, database_section: DatabaseSection, has_heir: bool, then: str
) -> None:
    skip_where_slots_stay(database_section)
    async with telling(open_home, **NESTED, runs__max_concurrent=1) as story:
        boss, other = await story.opens("boss"), await story.opens("other")
        requester = boss
        if has_heir:
            requester = await boss.spawns("!say ready", label="mid")
            await story.settles()
        await requester.hears(to_spawn(wait_at("leaf", "leaf words"), label="leaf"), then)
        await story.comes_to("leaf")
        await other.hears(wait_at("other"))  # takes the only slot when the leaf has ended
        story.opens_gate("leaf")
        await story.comes_to("other")
        await story.until(
            lambda runs: any(run.session_key == requester.key and run.status is RunStatus.QUEUED for run in runs)
        )
        await story.deletes(requester)
        story.opens_gate("other")
        await story.settles()
        if has_heir:
            assert "leaf words" in [record.result for record in await boss.records()]
        else:
            assert await story.kept() == ["leaf words"]
