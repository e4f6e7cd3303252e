"""Governing children: telling them something more, calling them off, listing them."""

import json
from datetime import timedelta
from typing import Any

import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER, Principal, PrincipalKind
from antiphon.domain.classification import Classification, Level
from antiphon.domain.run import RunStatus
from antiphon.domain.session import SessionStatus
from antiphon.engine.children.govern import MAX_LISTED
from antiphon.engine.sessions.upkeep import Upkeep
from antiphon.store import incarnations
from antiphon.testing import Call, FakeRequest, Reply, fake_provider
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import YIELD, to_call, to_spawn, wait_at
from tests.engine.gates import Gates
from tests.engine.stage import (
    HeldRunner,
    ManualClock,
    open_with_provider,
)
from tests.story import Character, Story, telling

pytestmark = pytest.mark.anyio

DEPTH: dict[str, Any] = {"agents__defaults__subagents__max_spawn_depth": 2}
DEEP: list[dict[str, Any]] = [{"id": "main", "subagents": {"maxSpawnDepth": 2}}]
WAITING = f"{to_spawn('!sleep 30')}\n{YIELD}"


@requirement("spawn:8", "runs:8")
async def test_a_child_at_work_is_told_once_by_a_call_that_is_repeated(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        child = await boss.spawns(wait_at("child", "one"), label="busy")
        await story.comes_to("child")
        told = [await boss.steers("busy", "!say two", key="k") for _ in range(2)]
        accepted = {"status": "accepted", "runId": child.run_id, "childSessionKey": child.key}
        assert told == [accepted, accepted]
        story.opens_gate("child")
        await story.settles()
        assert await boss.steers("busy", "!say two", key="k") == accepted
        assert (await child.texts()).count("!say two") == 1
        again = await boss.steers("busy", "!say two", key="other")
        assert again["code"] == "child_ended"


@requirement("spawn:8", "runs:8")
async def test_a_child_that_stays_begins_one_run_for_a_call_that_is_repeated(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("!say one", mode="session", label="helper")
        twin = await boss.spawns("!say one", mode="session", label="twin")
        await story.settles()
        steer: dict[str, Any] = {"action": "steer", "target": child.run_id, "message": "!say two"}
        told = await boss.calls("subagents", key="k", **steer)
        assert told["status"] == "accepted" and told["runId"] not in (child.run_id, twin.run_id)
        await story.settles()
        assert await boss.calls("subagents", key="k", **steer) == told
        await story.settles()
        assert [record.result for record in await boss.records()][2:] == ["two"]
        assert len(await child.runs()) == 2
        changes: list[dict[str, Any]] = [{"message": "!say three"}, {"target": "twin"}]
        for changed in changes:
            refused = await boss.calls("subagents", key="k", **{**steer, **changed})
            assert refused["code"] == "idempotency_key_reused"
        assert len(await twin.runs()) == 1


@requirement("spawn:8")
@pytest.mark.parametrize("mode", ["run", "session"])
async def test_a_child_that_waits_for_its_own_is_told_and_no_second_run_begins(open_home: OpenHome, mode: str) -> None:
    async with telling(open_home, **DEPTH) as story:
        boss = await story.opens("boss")
        child = await boss.spawns(to_spawn("!sleep 30", label="own"), YIELD, label="waiting", mode=mode)
        await child.parks()
        told = [await boss.steers("waiting", "one thing more", key="k") for _ in range(2)]
        assert told[0] == told[1] == {"status": "accepted", "runId": child.run_id, "childSessionKey": child.key}
        assert len(await child.runs()) == 1
        await child.cancels_children("own")
        await story.end_of(child.run_id)
        await story.settles()
        assert await boss.steers("waiting", "one thing more", key="k") == told[0]
        assert (await child.texts()).count("one thing more") == 1 and len(await child.runs()) == 2
        assert len(await boss.records()) == 1


@requirement("spawn:8", "runs:9")
async def test_a_continuation_reads_what_was_said_while_its_run_waited(open_home: OpenHome) -> None:
    gates = Gates()

    def answer(request: FakeRequest) -> Reply:
        is_first = all(message["role"] in ("system", "user") for message in request.messages)
        if "own-task" in str(request.messages[1]["content"]):
            return Reply(calls=[Call(name="gate", arguments='{"name": "own"}')]) if is_first else Reply(text="found")
        if is_first:
            spawn = Call(name="sessions_spawn", arguments=json.dumps({"task": "own-task"}))
            return Reply(calls=[spawn, Call(name="sessions_yield")])
        return Reply(text="read it" if "one thing more" in json.dumps(request.messages) else "missed it")

    async with (
        fake_provider(answer) as fake,
        open_with_provider(open_home, fake, Parts(tools=[gates.tool]), agents__list=DEEP) as app,
    ):
        story = Story(app, gates)
        boss = await story.opens("boss")
        child = await boss.spawns("the-task", label="waiting")
        await child.parks()
        await story.comes_to("own")
        told = await boss.steers("waiting", "one thing more")
        assert told["runId"] == child.run_id
        story.opens_gate("own")
        assert (await story.end_of(child.run_id)).reply == "read it"
        await story.settles()


@requirement("spawn:2", "spawn:8")
async def test_a_child_that_is_told_to_work_again_counts_among_those_at_work(open_home: OpenHome) -> None:
    async with telling(open_home, agents__defaults__subagents__max_children_per_agent=1) as story:
        boss = await story.opens("boss")
        for label in ("one", "two"):
            await boss.spawns("!say x", mode="session", label=label)
            await story.settles()
        assert (await boss.steers("one", "!sleep 30"))["status"] == "accepted"
        refused = await boss.steers("two", "!sleep 30")
        assert (refused["status"], refused["code"]) == ("forbidden", "spawn_children")
        assert (await boss.steers("one", "!sleep 30"))["status"] == "accepted"
        await boss.cancels_children()
        await story.settles()
        assert (await boss.steers("two", "!say y"))["status"] == "accepted"
        await story.settles()


@requirement("spawn:8", "sessions:2")
async def test_a_hidden_child_that_is_told_to_work_is_shown_until_it_is_stale_again(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with telling(open_home, Parts(clock=clock)) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("!say x", mode="session", label="helper")
        await story.settles()
        upkeep = Upkeep(story.app.database, story.app.workspaces, clock, stale_after=timedelta(days=7), retention=None)

        async def status_after(days: int) -> SessionStatus:
            clock.pass_time(timedelta(days=days))
            await upkeep.hide_stale()
            return (await child.session()).status

        assert await status_after(8) is SessionStatus.INACTIVE
        await boss.steers("helper", "!say y")
        await story.settles()
        assert await status_after(6) is SessionStatus.IDLE
        assert await status_after(2) is SessionStatus.INACTIVE


@requirement("spawn:8")
async def test_a_child_at_work_on_what_others_asked_is_shown_so_and_can_be_called_off(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        staying = await boss.spawns("!say x", mode="session", label="staying")
        ended = await boss.spawns("!say x", label="ended")
        await story.settles()
        posted = [await child.hears("!sleep 30") for child in (staying, ended)]
        queued = await staying.hears("!sleep 29")
        for each in posted:
            await story.until_running(each)
        listed = await boss.lists_children()
        assert [child["label"] for child in listed] == ["staying", "ended"]
        assert all(child["status"] == "running" and "endedAt" not in child for child in listed)
        one = await boss.cancels_children(staying.run_id)
        assert one["cancelled"] == [staying.key]
        await story.end_of(posted[0])
        rest = await boss.cancels_children()
        assert rest["cancelled"] == [ended.key]
        for each in (*posted, queued):
            assert (await story.end_of(each)).status is RunStatus.CANCELLED
        assert (await boss.cancels_children())["cancelled"] == []


@requirement("spawn:8", "spawn:7")
async def test_an_older_result_that_is_owed_is_shown_before_a_newer_one_that_came(open_home: OpenHome) -> None:
    async with telling(open_home, **DEPTH) as story:
        boss = await story.opens("boss")
        child = await boss.spawns(WAITING, mode="session", label="helper")
        await child.parks()
        second = await child.answers("!say two")
        listed = await boss.lists_children()
        assert [(each["runId"], each["status"]) for each in listed] == [(child.run_id, "running")]
        assert len(await boss.lists_children(target=second.id)) == 1
        answer = await boss.cancels_children()
        assert answer["cancelled"] == [child.key]
        assert (await story.end_of(child.run_id)).status is RunStatus.CANCELLED
        await story.settles()
        listed = await boss.lists_children()
        assert [(each["runId"], each["status"]) for each in listed] == [(second.id, "ok")]


@requirement("spawn:8", "spawn:7")
async def test_nothing_follows_from_any_result_of_a_child_that_is_called_off(open_home: OpenHome) -> None:
    async with telling(open_home, **DEPTH) as story:
        boss = await story.opens("boss")
        child = await boss.spawns_in_a_run(WAITING, mode="session", label="helper")
        await child.parks()
        second = await child.hears(WAITING)
        await story.until(lambda runs: sum(run.session_key == child.key and run.is_parked for run in runs) == 2)
        await boss.cancels_children("helper")
        for run_id in (child.run_id, second):
            assert (await story.end_of(run_id)).status is RunStatus.CANCELLED
        await story.settles()
        assert [record.has_run for record in await boss.records()] == [False, False]
        assert len(await boss.runs()) == 1


@requirement("spawn:8")
async def test_a_waiting_child_is_steered_once_though_clocks_differ(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with telling(open_home, Parts(clock=clock), **DEPTH) as story:
        boss = await story.opens("boss")
        child = await boss.spawns_in_a_run("!say one", mode="session", label="helper")
        await story.settles()
        await child.hears(WAITING)
        await child.parks()
        clock.pass_time(timedelta(seconds=-1))
        answers = [await boss.steers("helper", "more", key="same") for _ in range(2)]
        assert answers[0]["status"] == "accepted" and answers[0] == answers[1]
        await boss.cancels_children()
        await story.settles()


@requirement("spawn:8", "flow:4")
async def test_a_session_above_its_child_tells_it_nothing_more(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("!say one", mode="session", label="helper")
        await story.settles()
        await story.app.database.run(
            incarnations.set_taint, (await boss.session()).id, Classification(Level.CONFIDENTIAL)
        )
        refused = await boss.steers("helper", "the secret")
        assert (refused["status"], refused["code"]) == ("forbidden", "write_down")
        assert "the secret" not in await child.texts()


@requirement("spawn:8")
async def test_a_long_list_leaves_out_hidden_and_ended_children_first(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with telling(
        open_home, Parts(runner=runner), agents__defaults__subagents__max_children_per_agent=1000
    ) as story:
        boss = await story.opens("boss")

        async def listed(**more: Any) -> tuple[list[str], bool]:
            answer = await boss.calls("subagents", action="list", **more)
            assert answer["count"] == len(answer["children"])
            return [child["label"] for child in answer["children"]], answer.get("hasMore", False)

        await boss.spawns("x", label="busy")
        await runner.until_begun(1)
        runner.release_later()
        ended = [f"ended {number}" for number in range(MAX_LISTED - 1)]
        for child in [await boss.spawns("x", label=label) for label in ended]:
            await story.end_of(child.run_id)
        hidden = await boss.spawns("x", label="hidden")
        await story.end_of(hidden.run_id)
        await hidden.changes(status="inactive")
        assert await listed() == (["busy", *ended], True)
        assert await listed(target="hidden") == (["hidden"], False)
        newest = await boss.spawns("x", label="newest")
        await story.end_of(newest.run_id)
        assert await listed() == (["busy", *ended[1:], "newest"], True)
        await story.deletes(hidden)
        assert (await listed())[1]
        await boss.cancels_children()
        await story.settles()


@requirement("spawn:8")
async def test_a_key_an_id_and_a_result_go_before_labels_that_spell_them(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("!sleep 30", label="one")
        for name in (child.key, (await child.session()).id, child.run_id):
            await boss.spawns("!sleep 30", label=name)
            assert [each["sessionKey"] for each in await boss.lists_children(target=name)] == [child.key]
            told = await boss.steers(name, "!say x")
            assert told["childSessionKey"] == child.key
        answer = await boss.cancels_children(child.key)
        assert answer == {"status": "ok", "cancelled": [child.key]}
        await boss.cancels_children()
        await story.settles()


@requirement("spawn:8", "answers:2")
async def test_a_list_of_an_unknown_child_says_so_and_all_names_each(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss, other = await story.opens("boss"), await story.opens("other")
        empty: dict[str, Any] = {"count": 0, "children": []}
        assert await boss.calls("subagents", action="list", target="all") == empty
        keys = [(await boss.spawns("!say x", label="twin")).key for _ in range(2)]
        for target in ("all", "twin", " twin "):
            assert [each["sessionKey"] for each in await boss.lists_children(target=target)] == keys
        listing, cancelling = [
            [await other.calls("subagents", action=action, target=target) for target in ("nobody", "twin", keys[0])]
            for action in ("list", "cancel")
        ]
        assert listing == cancelling and [answer["code"] for answer in listing] == ["not_found"] * 3
        await story.settles()


GUEST = Principal(PrincipalKind.PERSON, "eve")
ROOM = "agent:main:fake:group:room"
GUESTS_SPAWN: dict[str, Any] = {
    "access__roles__guest__tools": ["sessions_spawn", "gate"],
    "tools__approval": {"people": []},
}
"""Settings under which a guest may cause what is spawned here."""


async def open_room(story: Story) -> Character:
    """A group of the owner's, with a guest."""
    room = await story.opens(ROOM)
    await room.admits(GUEST)
    return room


async def steer_in_a_run(room: Character, target: str, message: str, principal: Principal = OWNER) -> dict[str, Any]:
    return await room.calls_in_a_run("subagents", principal=principal, action="steer", target=target, message=message)


@requirement("spawn:8", "runs:4", "runs:7")
async def test_what_a_guest_says_joins_no_work_of_the_owners(open_home: OpenHome) -> None:
    async with telling(open_home, **GUESTS_SPAWN) as story:
        room = await open_room(story)
        await room.answers(to_spawn(wait_at("once", "mine"), label="once"))
        await room.answers(to_spawn(wait_at("staying", "mine too"), label="staying", mode="session"))
        await story.comes_to("once")
        await story.comes_to("staying")
        assert (await steer_in_a_run(room, "once", "!say his", GUEST))["code"] == "others_work"
        accepted = await steer_in_a_run(room, "staying", "!say his", GUEST)
        assert accepted["status"] == "accepted", "a run of its own, after the other"
        story.opens_gate("once")
        story.opens_gate("staying")
        await story.settles()
        assert (await story.run(accepted["runId"])).principal == GUEST
        assert {record.result for record in await room.records()} == {"mine", "mine too", "his"}


@requirement("spawn:8", "runs:7")
async def test_what_the_owner_says_joins_a_guests_work_which_keeps_the_guests_rights(open_home: OpenHome) -> None:
    more: dict[str, Any] = {**GUESTS_SPAWN, "tools__subagents": {"tools": ["sessions_history"]}}
    async with telling(open_home, **more) as story:
        room = await open_room(story)
        secret = await story.opens("secret")
        await secret.answers("the owner's alone")
        await room.answers(to_spawn(wait_at("guest"), label="guest"), principal=GUEST)
        await story.comes_to("guest")
        told = await steer_in_a_run(room, "guest", to_call("sessions_history", sessionKey=secret.key))
        assert told["status"] == "accepted"
        story.opens_gate("guest")
        await story.settles()
        (record,) = await room.records()
        assert "not_found" in record.result and "alone" not in record.result


@requirement("spawn:7", "runs:7")
async def test_results_are_answered_with_the_rights_of_whom_they_are_for(open_home: OpenHome) -> None:
    async with telling(open_home, **GUESTS_SPAWN) as story:
        room = await open_room(story)
        await room.answers(to_spawn(wait_at("guest", "his"), label="guest"), principal=GUEST)
        await room.answers(to_spawn(wait_at("owner", "mine"), label="owner"))
        waiting = await room.hears(to_spawn(wait_at("last"), label="last"), YIELD)
        await room.parks()
        story.opens_gate("guest")
        story.opens_gate("owner")
        await story.until(lambda runs: sum(run.status is RunStatus.OK and run.report is not None for run in runs) == 2)
        await story.cancels(waiting)
        await story.settles()
        newest, second, *_ = await room.runs()
        assert {(str(run.principal), run.reply) for run in (newest, second)} == {
            (str(GUEST), "echo: his"),
            (str(OWNER), "echo: mine"),
        }
