"""The turn of a child that words what its requester's channel is told: what it may do, and where its words go."""

import json
from pathlib import Path
from typing import Any

import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.classification import Classification, Level
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import RunStatus
from antiphon.engine.sessions.patches import session_columns
from antiphon.store.database import Query
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_spawn, wait_at
from tests.story import NESTED, telling

pytestmark = pytest.mark.anyio


def learn() -> str:
    """Learns a secret."""
    return "learnt"


RISING = tool(learn, effects=["reads"], classification={"level": "CONFIDENTIAL"})
"""A tool by which its session learns something above its requester."""


@requirement("spawn:7", "spawn:8")
async def test_an_announce_turn_may_spawn_and_yield_and_is_sent_when_it_has_gone_on(open_home: OpenHome) -> None:
    channel = FakeChannel()
    spawn = {"name": "sessions_spawn", "arguments": {"task": "!sleep 1"}}
    turns: list[dict[str, Any]] = [{"calls": [spawn]}, {"calls": [{"name": "sessions_yield"}]}]
    async with telling(open_home, Parts(channels=[channel]), **NESTED) as story:
        model = story.script([{"text": "the result"}], turns, [{"text": "In other words."}])
        boss = await story.opens("boss")
        await boss.speaks_at("the room", NAME)
        await boss.answers(to_spawn("go", model=model), "!say <NO_REPLY>")
        await story.settles()
        await channel.until_asked(1)
        assert channel.texts == ["In other words."]
        (record,) = await boss.records()
        assert record.result == "the result"


@requirement("spawn:7", "flow:6")
@pytest.mark.parametrize("is_late", [False, True], ids=["while at work", "in the announce turn"])
async def test_a_requester_that_may_not_read_the_result_says_so_where_it_was_asked(
    open_home: OpenHome, is_late: bool
) -> None:
    channel = FakeChannel()
    waiting: list[dict[str, Any]] = [{"calls": [{"name": "gate", "arguments": {"name": "child"}}]}]
    learning: list[dict[str, Any]] = [{"calls": [{"name": "learn"}]}, {"text": "the secret"}]
    turns = [[*waiting, {"text": "fine"}], learning] if is_late else [[*waiting, *learning]]
    task = "!sleep 0" if is_late else "go"
    async with telling(open_home, Parts(channels=[channel], tools=[RISING])) as story:
        boss = await story.opens("boss")
        await boss.speaks_at("room A", NAME)
        spawn = to_spawn(task, model=story.script(*turns))
        posted = await boss.hears(spawn, wait_at("end"), "!say <NO_REPLY>")
        await story.comes_to("child")
        (child,) = await boss.children()
        await child.changes(**session_columns({"clearance": Classification(Level.CONFIDENTIAL)}))
        story.opens_gate("child")
        await story.until(lambda runs: any(run.report is not None and run.is_over for run in runs))
        await boss.speaks_at("room B", NAME)
        story.opens_gate("end")
        await story.end_of(posted)
        await story.settles()
        await channel.until_asked(1)
        assert [delivery.place.to for delivery in channel.taken] == ["room A"]
        assert not any("secret" in text for text in channel.texts)
        assert len(await boss.runs()) == 2 and len(await child.runs()) == 1 + is_late


@requirement("spawn:7", "runs:5")
async def test_a_run_that_nobody_above_asked_for_and_that_is_called_off_reports_nothing(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with telling(open_home, Parts(channels=[channel])) as story:
        boss = await story.opens("boss")
        await boss.speaks_at("the room", NAME)
        await boss.answers(to_spawn("!say one", mode="session"), "!say <NO_REPLY>")
        await story.settles()
        (child,) = await boss.children()
        posted = await child.hears("!sleep 60")
        await story.until_running(posted)
        await story.cancels_work_of(boss)
        assert (await story.end_of(posted)).status is RunStatus.CANCELLED
        await child.answers("!say two")
        await story.settles()
        await channel.until_asked(2)
        assert channel.texts == ["one", "two"]
        assert [record.result for record in await boss.records()] == ["one", "two"]


@requirement("spawn:7")
async def test_a_child_that_stays_reports_as_it_was_spawned_whoever_asked_it_last(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        child = await boss.spawns_in_a_run(wait_at("child", "one"), mode="session", label="helper")
        story.opens_gate("child")
        await story.settles()
        await boss.steers("helper", "!say two")
        await story.settles()
        await child.answers("!say three")
        await story.settles()
        found = await boss.records()
        assert [(record.result, record.has_run) for record in found] == [("one", True), ("two", False), ("three", True)]


@requirement("spawn:3")
async def test_each_run_of_a_child_that_stays_has_its_time_limit(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("!say one", mode="session", runTimeoutSeconds=1)
        await story.settles()
        run = await child.answers("!sleep 60")
        assert run.status is RunStatus.TIMEOUT


@requirement("spawn:5")
@pytest.mark.parametrize("mode", ["run", "session"])
async def test_attachments_are_kept_no_longer_than_until_the_task_is_done(open_home: OpenHome, mode: str) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        files = [{"name": "notes.txt", "content": json.dumps(list(range(9)))}]
        child = await boss.spawns("!say one", mode=mode, attachments=files)
        await story.settles()

        async def count(query: Query) -> int:
            return (await query.fetch_all("SELECT COUNT(*) FROM attachments"))[0][0]

        assert await story.app.database.read(count) == 0
        if mode == "session":
            assert (await child.answers("!say two")).reply == "two"
            await story.settles()
        assert (await child.session()).key


@requirement("spawn:5")
async def test_attachments_wait_for_their_task_though_another_run_goes_first(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, runs__max_concurrent=1) as story:
        boss = await story.opens("boss")
        other = await story.opens("other")
        await other.hears(wait_at("other"))
        await story.comes_to("other")
        files = [{"name": "notes.txt", "content": "hello"}]
        child = await boss.spawns(wait_at("task"), mode="session", attachments=files)
        first = await child.hears("!say first", mode=QueueMode.INTERRUPT)
        story.opens_gate("other")
        assert (await story.end_of(first)).reply == "first"
        await story.comes_to("task")
        (written,) = home.glob("workspaces/**/notes.txt")
        assert written.read_text() == "hello"
        story.opens_gate("task")
        await story.settles()


@requirement("spawn:7")
@pytest.mark.parametrize("words", ["", "  \n"])
async def test_a_turn_without_words_sends_the_record(open_home: OpenHome, words: str) -> None:
    channel = FakeChannel()
    async with telling(open_home, Parts(channels=[channel])) as story:
        boss = await story.opens("boss")
        await boss.speaks_at("room", NAME)
        model = story.script([{"text": "42 is the result"}], [{"text": words}])
        await boss.answers(to_spawn("go", model=model, label="c"), "!say started")
        await story.settles()
        (text,) = {each.text for each in await story.deliveries()} - {"started"}
        assert text.startswith("Sub-agent: c\nStatus: ok\nResult:\n42 is the result\n")


@requirement("sessions:6", "spawn:7")
async def test_a_result_of_an_ended_conversation_does_not_enter_the_childs_new_one(open_home: OpenHome) -> None:
    async with telling(open_home, Parts(channels=[FakeChannel()])) as story:
        boss = await story.opens("boss")
        await boss.speaks_at("the room", NAME)
        posted = await boss.hears(to_spawn("!say old words", mode="session"), wait_at("end"), "!say spawned")
        await story.until(lambda runs: any(run.report is not None and run.status is RunStatus.OK for run in runs))
        (child,) = await boss.children()
        await story.resets(child)
        story.opens_gate("end")
        await story.end_of(posted)
        await story.settles()
        present = (await child.session()).id
        messages = [event for event in await child.log() if event.session_id == present and event.message is not None]
        assert messages == []
