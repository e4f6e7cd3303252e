"""Sessions that wait for children, or work for others, and are deleted or reset meanwhile: no result is lost."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from antiphon.app import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import RunId
from antiphon.domain.run import RunStatus
from antiphon.store.runs import RunFilter
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.family import (
    LOOK_SECONDS,
    NESTED,
    YIELD,
    children_of,
    records,
    session_of,
    spawn_directive,
    spawned_from_outside,
    until,
    until_parked,
    write_script,
)
from tests.engine.gates import Gates, wait_at
from tests.engine.parley import deliveries, key_of, open_peer, runs_of, set_place, settings, settle, target_of
from tests.engine.stage import ManualClock, ask, post, wait_end
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

BOSS = key_of("boss")
SHORT: dict[str, Any] = {"gateway__drain_seconds": 0.1}
"""For tests that leave work behind."""


async def delete(app: App, key: str) -> None:
    await app.services.sessions.delete(OWNER, app.services.sessions.target(key))


async def only_child_of(app: App, name: str) -> str:
    (key,) = await children_of(app, name)
    return key


async def until_announced(app: App, count: int) -> list[tuple[str | None, str]]:
    """Where and what was sent, once there is so much and all is quiet."""
    await settle(app)
    sent = [(each.place.to, each.text) for each in await deliveries(app)]
    assert len(sent) == count, sent
    return sent


# Deleted requesters.


def three_deep(tmp_path: Path) -> str:
    """What makes the boss wait for a child, that one for its own, and that for a leaf at a gate."""
    leaf = spawn_directive(wait_at("leaf", "leaf words"), label="leaf")
    sub: dict[str, Any] = {"task": f"{leaf}\n!say sub waits", "label": "sub", "model": "offline"}
    model = write_script(
        tmp_path,
        [{"calls": [{"name": "sessions_spawn", "arguments": sub}]}, {"calls": [{"name": "sessions_yield"}]}],
        [{"calls": [{"name": "gate", "arguments": {"name": "mid goes on"}}]}, {"text": "mid done"}],
        [{"text": "mid has heard the leaf"}],
    )
    return f"{spawn_directive('go', label='mid', model=model)}\n{YIELD}"


async def without_the_middle(app: App, gates: Gates, tmp_path: Path) -> str:
    """The boss's run that waits, once the session between the leaf and its grandparent is gone."""
    await open_peer(app, "boss")
    run = await post(app, BOSS, three_deep(tmp_path))
    await gates.until_reached("leaf")
    await until(app, lambda runs: sum(run.is_parked for run in runs) == 3)
    mid = await session_of(app, await only_child_of(app, "boss"))
    runs = await app.services.runs.list(OWNER, RunFilter(), limit=10)
    (sub,) = {run.session_key for run in runs if run.is_parked} - {BOSS, str(mid.key)}
    await delete(app, sub)
    await gates.until_reached("mid goes on")
    assert run.run_id is not None
    return run.run_id


@requirement("spawn:7", "sessions:7")
async def test_who_inherits_a_child_waits_for_it_before_it_reports_itself(open_home: OpenHome, tmp_path: Path) -> None:
    gates = Gates()
    async with open_home(settings(**NESTED), Parts(tools=[gates.tool])) as app:
        waiting = await without_the_middle(app, gates, tmp_path)
        mid = await only_child_of(app, "boss")
        gates.open("mid goes on")
        await until_parked(app, mid)
        gates.open("leaf")
        assert (await wait_end(app, RunId(waiting))).reply == "echo: mid has heard the leaf"
        assert [record.result for record in await records(app, BOSS)] == ["mid has heard the leaf"]
        assert [record.result for record in await records(app, mid)][1:] == ["leaf words"]


@requirement("spawn:8", "sessions:7")
async def test_who_cancels_the_top_cancels_what_was_inherited_below(open_home: OpenHome, tmp_path: Path) -> None:
    gates = Gates()
    async with open_home(settings(**NESTED), Parts(tools=[gates.tool])) as app:
        waiting = await without_the_middle(app, gates, tmp_path)
        await app.services.runs.cancel(OWNER, RunId(waiting))
        await settle(app)
        ended = [
            run for run in await app.services.runs.list(OWNER, RunFilter(), limit=20) if run.status is not RunStatus.OK
        ]
        assert {run.status for run in ended} == {RunStatus.CANCELLED}
        assert len(ended) == 3, "the boss's, its child's and the leaf's"


@requirement("spawn:7", "sessions:7")
@pytest.mark.parametrize("state", ["parked", "queued"])
async def test_a_channel_hears_that_its_child_was_deleted(open_home: OpenHome, state: str) -> None:
    gates, channel = Gates(), FakeChannel()
    slots: dict[str, Any] = {"runs__max_concurrent": 1} if state == "queued" else SHORT
    async with open_home(settings(**NESTED, **slots), Parts(tools=[gates.tool], channels=[channel])) as app:
        await set_place(app, await open_peer(app, "boss"), "room", NAME)
        await open_peer(app, "other")
        if state == "parked":
            task = f"{spawn_directive('!sleep 60', label='leaf')}\n{YIELD}"
            await ask(app, BOSS, f"{spawn_directive(task, label='mid')}\n!say started")
            await until_parked(app, await only_child_of(app, "boss"))
        else:
            asked = await post(app, BOSS, f"{wait_at('boss')}\n{spawn_directive('!say x', label='mid')}\n!say started")
            await gates.until_reached("boss")
            await post(app, key_of("other"), wait_at("other"))
            gates.open("boss")
            await wait_end(app, asked.run_id)
            await gates.until_reached("other")
        await delete(app, await only_child_of(app, "boss"))
        gates.open("other")
        answered = await app.services.runs.list(OWNER, RunFilter(session=(await session_of(app, BOSS)).row), limit=5)
        await wait_end(app, answered[0].id)
        assert ("room", "echo: (no output)") in [(each.place.to, each.text) for each in await deliveries(app)]
        (record,) = await records(app, BOSS)
        assert "Status: error: The session was deleted." in record.text


@requirement("spawn:7", "sessions:7")
async def test_what_was_inherited_is_told_where_its_spawner_was_to_report(open_home: OpenHome) -> None:
    gates, channel = Gates(), FakeChannel()
    async with open_home(settings(**NESTED), Parts(tools=[gates.tool], channels=[channel])) as app:
        boss = await open_peer(app, "boss")
        await set_place(app, boss, "room one", NAME)
        task = f"{spawn_directive(wait_at('leaf', 'leaf words'), label='leaf')}\n{YIELD}"
        await ask(app, BOSS, f"{spawn_directive(task, label='mid')}\n!say started")
        await gates.until_reached("leaf")
        mid = await only_child_of(app, "boss")
        await until_parked(app, mid)
        await set_place(app, boss, "room two", NAME)
        await delete(app, mid)
        gates.open("leaf")
        assert {to for to, _ in await until_announced(app, 3)} == {"room one"}


@requirement("spawn:7", "tools:1")
async def test_what_was_inherited_from_outside_starts_nothing_either(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(**NESTED), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        task = f"{spawn_directive(wait_at('leaf', 'leaf words'), label='leaf')}\n{YIELD}"
        await spawned_from_outside(app, boss, task, label="mid")
        await gates.until_reached("leaf")
        mid = await only_child_of(app, "boss")
        await until_parked(app, mid)
        await delete(app, mid)
        gates.open("leaf")
        await settle(app)
        assert [record.result for record in await records(app, BOSS)] == ["(no output)", "leaf words"]
        assert await runs_of(app, BOSS) == 0


@requirement("spawn:4", "spawn:7", "sessions:7")
@pytest.mark.parametrize("cleanup", ["keep", "delete"])
async def test_a_result_that_came_to_a_deleted_session_goes_to_its_requester(open_home: OpenHome, cleanup: str) -> None:
    gates = Gates()
    async with open_home(settings(**NESTED), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        quick = spawn_directive(wait_at("quick", "quick result"), label="quick", cleanup=cleanup)
        slow = spawn_directive(wait_at("slow", "slow result"), label="slow", cleanup=cleanup)
        task = f"{quick}\n{slow}\n{YIELD}"
        await ask(app, BOSS, f"{spawn_directive(task, label='mid')}\n!say started")
        mid = await only_child_of(app, "boss")
        await until_parked(app, mid)
        gates.open("quick")
        await until(app, lambda runs: any(run.reply == "quick result" for run in runs))
        await delete(app, mid)
        gates.open("slow")
        with anyio.fail_after(SECONDS):
            while len(found := await records(app, BOSS)) < 3:
                await anyio.sleep(LOOK_SECONDS)
        assert [record.result for record in found] == ["(no output)", "quick result", "slow result"]
        await settle(app)
        answers = {run.reply for run in await app.services.runs.list(OWNER, RunFilter(), limit=20)}
        assert {"echo: quick result", "echo: slow result"} <= answers


@requirement("spawn:7", "sessions:7")
async def test_a_result_that_came_to_a_deleted_session_without_a_requester_is_kept(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(**NESTED, **SHORT), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        quick = spawn_directive(wait_at("quick", "quick result"), label="quick", cleanup="delete")
        await post(app, BOSS, f"{quick}\n{spawn_directive('!sleep 60', label='slow')}\n{YIELD}")
        await until_parked(app, BOSS)
        gates.open("quick")
        await until(app, lambda runs: any(run.reply == "quick result" for run in runs))
        await delete(app, BOSS)
        kept = await app.services.runs.list(OWNER, RunFilter(is_kept=True), limit=5)
        assert [run.reply for run in kept] == ["quick result"]


# Resets.


@requirement("sessions:6", "spawn:8")
async def test_a_reset_ends_a_run_that_waits_for_an_earlier_ones_child(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        await ask(app, BOSS, f"{spawn_directive(wait_at('first', 'one'))}\n!say started")
        waiting = await post(app, BOSS, YIELD)
        await until_parked(app, BOSS)
        await app.services.resets.reset(OWNER, target_of(app, boss))
        ended = await wait_end(app, waiting.run_id)
        assert (ended.status, ended.code) == (RunStatus.CANCELLED, "reset")
        gates.open("first")
        await settle(app)
        (record,) = await records(app, BOSS)
        assert (record.result, record.has_run, record.session_id) == ("one", False, boss.id)


@requirement("sessions:6", "spawn:7")
async def test_a_conversation_is_not_over_while_its_news_are_worded(open_home: OpenHome, tmp_path: Path) -> None:
    gates, channel, clock = Gates(), FakeChannel(), ManualClock()
    reset = {"mode": "idle", "idle_minutes": 60}
    parts = Parts(tools=[gates.tool], channels=[channel], clock=clock)
    async with open_home(settings(session__reset=reset), parts) as app:
        await set_place(app, await open_peer(app, "boss"), "room", NAME)
        work = [{"calls": [{"name": "gate", "arguments": {"name": "work"}}]}, {"text": "42"}]
        words = [{"calls": [{"name": "gate", "arguments": {"name": "words"}}]}, {"text": "It is 42."}]
        model = write_script(tmp_path, work, words)
        await ask(app, BOSS, f"{spawn_directive('go', model=model)}\n!say started")
        await gates.until_reached("work")
        clock.pass_time(timedelta(hours=2))
        gates.open("work")
        await gates.until_reached("words")
        await ask(app, BOSS, "any news?")
        gates.open("words")
        assert ("room", "It is 42.") in await until_announced(app, 3)


@requirement("sessions:6", "spawn:7")
async def test_work_of_a_staying_child_belongs_to_the_conversation_in_which_it_began(open_home: OpenHome) -> None:
    gates, channel, clock = Gates(), FakeChannel(), ManualClock()
    parts = Parts(tools=[gates.tool], channels=[channel], clock=clock)
    async with open_home(settings(), parts) as app:
        boss = await open_peer(app, "boss")
        await set_place(app, boss, "room", NAME)
        await ask(app, BOSS, f"{spawn_directive('!say ready', mode='session')}\n!say started")
        await settle(app)
        helper = await only_child_of(app, "boss")
        earlier = await post(app, helper, wait_at("earlier", "for the old one"))
        await gates.until_reached("earlier")
        clock.pass_time(timedelta(minutes=1))
        await app.services.resets.reset(OWNER, target_of(app, boss))
        clock.pass_time(timedelta(minutes=1))
        gates.open("earlier")
        await wait_end(app, earlier.run_id)
        await ask(app, helper, "!say for the new one")
        await settle(app)
        current = await session_of(app, BOSS)
        found = {record.result: record.session_id for record in await records(app, BOSS)}
        assert (found["for the old one"], found["for the new one"]) == (boss.id, current.id)
        assert {text for _, text in await until_announced(app, 3)} == {"started", "ready", "for the new one"}
