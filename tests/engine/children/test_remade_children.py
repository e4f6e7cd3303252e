"""A child that was deleted and made anew under its key has nothing to do with the result of the deleted one."""

import pytest

from antiphon.building import Parts
from antiphon.domain.run import RunStatus
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_spawn, wait_at
from tests.story import Character, Story, telling

pytestmark = pytest.mark.anyio


async def until_children_ended(story: Story, boss: Character) -> list[Character]:
    await story.until(lambda runs: any(run.report is not None and run.status is RunStatus.OK for run in runs))
    return await boss.children()


@requirement("sessions:7", "spawn:7")
async def test_a_session_made_anew_is_not_deleted_with_the_child_before_it(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        posted = await boss.hears(to_spawn("!say kept", cleanup="delete"), wait_at("end"), "!say spawned")
        (child,) = await until_children_ended(story, boss)
        await story.deletes(child)
        anew = await story.opens(child.key)
        await anew.answers("something of the owner's")
        story.opens_gate("end")
        await story.end_of(posted)
        await story.settles()
        await story.app.due_children.settle_due()
        assert "something of the owner's" in await anew.texts()


@requirement("sessions:7", "spawn:7")
async def test_a_session_made_anew_does_not_word_the_result_of_the_child_before_it(open_home: OpenHome) -> None:
    async with telling(open_home, Parts(channels=[FakeChannel()])) as story:
        boss = await story.opens("boss")
        await boss.speaks_at("the room", NAME)
        posted = await boss.hears(to_spawn("!say kept"), wait_at("end"), "!say spawned")
        (child,) = await until_children_ended(story, boss)
        await story.deletes(child)
        anew = await story.opens(child.key)
        story.opens_gate("end")
        await story.end_of(posted)
        await story.settles()
        assert await anew.runs() == []
        assert await anew.texts() == []


@requirement("sessions:7", "spawn:7")
async def test_a_session_made_anew_is_not_steered_by_the_requester_of_the_child_before_it(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        posted = await boss.hears(to_spawn("!say kept", mode="session"), wait_at("end"), "!say spawned")
        (child,) = await until_children_ended(story, boss)
        await story.deletes(child)
        anew = await story.opens(child.key)
        story.opens_gate("end")
        await story.end_of(posted)
        await story.settles()
        steered = await boss.steers(anew.key, "!say what the requester wants")
        assert steered["status"] == "not_found", steered
        assert await anew.texts() == []
