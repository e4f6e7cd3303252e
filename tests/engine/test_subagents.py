"""Governing children: telling them something more, calling them off, listing them."""

import json
from datetime import timedelta
from typing import Any

import anyio
import pytest

from antiphon.app import App, Parts
from antiphon.domain.actor import OWNER, Principal, PrincipalKind
from antiphon.domain.classification import Classification, Level
from antiphon.domain.ids import RunId
from antiphon.domain.run import RunStatus
from antiphon.domain.session import SessionStatus
from antiphon.engine.children.govern import MAX_LISTED
from antiphon.engine.sessions.upkeep import Upkeep
from antiphon.store import sessions as rows
from antiphon.store.runs import RunFilter
from antiphon.testing import Call, FakeRequest, Reply, fake_provider
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.family import (
    YIELD,
    records,
    session_of,
    spawn_directive,
    spawned,
    spawned_from_outside,
    until,
    until_parked,
    until_running,
)
from tests.engine.gates import Gates, wait_at
from tests.engine.parley import call, key_of, open_peer, runs_of, settings, settle
from tests.engine.stage import (
    HeldRunner,
    ManualClock,
    ask,
    find_run,
    open_with_provider,
    post,
    read_log,
    texts,
    wait_end,
)
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

DEPTH: dict[str, Any] = {"agents__defaults__subagents__max_spawn_depth": 2}
DEEP: list[dict[str, Any]] = [{"id": "main", "subagents": {"maxSpawnDepth": 2}}]
WAITING = f"{spawn_directive('!sleep 30')}\n{YIELD}"


@requirement("spawn:8", "runs:8")
async def test_a_child_at_work_is_told_once_by_a_call_that_is_repeated(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        child = await spawned_from_outside(app, boss, wait_at("child", "one"), label="busy")
        await gates.until_reached("child")
        steer: dict[str, Any] = {"action": "steer", "target": "busy", "message": "!say two"}
        told = [await call(app, boss, "subagents", key="k", **steer) for _ in range(2)]
        assert (
            told[0]
            == told[1]
            == {
                "status": "accepted",
                "runId": child["runId"],
                "childSessionKey": child["childSessionKey"],
            }
        )
        gates.open("child")
        await settle(app)
        assert await call(app, boss, "subagents", key="k", **steer) == told[0]
        assert texts(await read_log(app, child["childSessionKey"])).count("!say two") == 1
        again = await call(app, boss, "subagents", key="other", **steer)
        assert again["code"] == "child_ended"


@requirement("spawn:8", "runs:8")
async def test_a_child_that_stays_begins_one_run_for_a_call_that_is_repeated(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        boss = await open_peer(app, "boss")
        child = await spawned_from_outside(app, boss, "!say one", mode="session", label="helper")
        twin = await spawned_from_outside(app, boss, "!say one", mode="session", label="twin")
        await settle(app)
        steer: dict[str, Any] = {"action": "steer", "target": child["runId"], "message": "!say two"}
        told = await call(app, boss, "subagents", key="k", **steer)
        assert told["status"] == "accepted" and told["runId"] not in (child["runId"], twin["runId"])
        await settle(app)
        assert await call(app, boss, "subagents", key="k", **steer) == told
        await settle(app)
        assert [record.result for record in await records(app, key_of("boss"))][2:] == ["two"]
        assert await runs_of(app, child["childSessionKey"]) == 2
        changes: list[dict[str, Any]] = [{"message": "!say three"}, {"target": "twin"}]
        for changed in changes:
            refused = await call(app, boss, "subagents", key="k", **{**steer, **changed})
            assert refused["code"] == "idempotency_key_reused"
        assert await runs_of(app, twin["childSessionKey"]) == 1


@requirement("spawn:8")
@pytest.mark.parametrize("mode", ["run", "session"])
async def test_a_child_that_waits_for_its_own_is_told_and_no_second_run_begins(open_home: OpenHome, mode: str) -> None:
    task = f"{spawn_directive('!sleep 30', label='own')}\n{YIELD}"
    async with open_home(settings(**DEPTH)) as app:
        boss = await open_peer(app, "boss")
        child = await spawned_from_outside(app, boss, task, label="waiting", mode=mode)
        key = child["childSessionKey"]
        await until_parked(app, key)
        steer: dict[str, Any] = {"action": "steer", "target": "waiting", "message": "one thing more"}
        told = [await call(app, boss, "subagents", key="k", **steer) for _ in range(2)]
        assert told[0] == told[1] == {"status": "accepted", "runId": child["runId"], "childSessionKey": key}
        assert await runs_of(app, key) == 1
        await call(app, await session_of(app, key), "subagents", action="cancel", target="own")
        await wait_end(app, child["runId"])
        await settle(app)
        assert await call(app, boss, "subagents", key="k", **steer) == told[0]
        assert texts(await read_log(app, key)).count("one thing more") == 1 and await runs_of(app, key) == 2
        assert len(await records(app, key_of("boss"))) == 1


@requirement("spawn:8", "runs:9")
async def test_a_continuation_reads_what_was_said_while_its_run_waited(open_home: OpenHome) -> None:
    reached, released = anyio.Event(), anyio.Event()

    async def hold() -> str:
        """Waits for the test."""
        reached.set()
        await released.wait()
        return "held"

    def answer(request: FakeRequest) -> Reply:
        is_first = all(message["role"] in ("system", "user") for message in request.messages)
        if "own-task" in str(request.messages[1]["content"]):
            return Reply(calls=[Call(name="hold")]) if is_first else Reply(text="found")
        if is_first:
            spawn = Call(name="sessions_spawn", arguments=json.dumps({"task": "own-task"}))
            return Reply(calls=[spawn, Call(name="sessions_yield")])
        return Reply(text="read it" if "one thing more" in json.dumps(request.messages) else "missed it")

    async with (
        fake_provider(answer) as fake,
        open_with_provider(open_home, fake, Parts(tools=(hold,)), agents__list=DEEP) as app,
    ):
        boss = await open_peer(app, "boss")
        child = await spawned_from_outside(app, boss, "the-task", label="waiting")
        await until_parked(app, child["childSessionKey"])
        with anyio.fail_after(SECONDS):
            await reached.wait()
        told = await call(app, boss, "subagents", action="steer", target="waiting", message="one thing more")
        assert told["runId"] == child["runId"]
        released.set()
        assert (await wait_end(app, child["runId"])).reply == "read it"
        await settle(app)


@requirement("spawn:2", "spawn:8")
async def test_a_child_that_is_told_to_work_again_counts_among_those_at_work(open_home: OpenHome) -> None:
    async with open_home(settings(agents__defaults__subagents__max_children_per_agent=1)) as app:
        boss = await open_peer(app, "boss")
        for label in ("one", "two"):
            await spawned_from_outside(app, boss, "!say x", mode="session", label=label)
            await settle(app)
        steer: dict[str, Any] = {"action": "steer", "message": "!sleep 30"}
        assert (await call(app, boss, "subagents", target="one", **steer))["status"] == "accepted"
        refused = await call(app, boss, "subagents", target="two", **steer)
        assert (refused["status"], refused["code"]) == ("forbidden", "spawn_children")
        assert (await call(app, boss, "subagents", target="one", **steer))["status"] == "accepted"
        await call(app, boss, "subagents", action="cancel", target="all")
        await settle(app)
        assert (await call(app, boss, "subagents", target="two", action="steer", message="!say y"))[
            "status"
        ] == "accepted"
        await settle(app)


@requirement("spawn:8", "sessions:2")
async def test_a_hidden_child_that_is_told_to_work_is_shown_until_it_is_stale_again(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with open_home(settings(), Parts(clock=clock)) as app:
        boss = await open_peer(app, "boss")
        child = await spawned_from_outside(app, boss, "!say x", mode="session", label="helper")
        await settle(app)
        upkeep = Upkeep(app.database, app.workspaces, clock, stale_after=timedelta(days=7), retention=None)

        async def status_after(days: int) -> SessionStatus:
            clock.pass_time(timedelta(days=days))
            await upkeep.hide_stale()
            return (await session_of(app, child["childSessionKey"])).status

        assert await status_after(8) is SessionStatus.INACTIVE
        await call(app, boss, "subagents", action="steer", target="helper", message="!say y")
        await settle(app)
        assert await status_after(6) is SessionStatus.IDLE
        assert await status_after(2) is SessionStatus.INACTIVE


@requirement("spawn:8")
async def test_a_child_at_work_on_what_others_asked_is_shown_so_and_can_be_called_off(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        boss = await open_peer(app, "boss")
        staying = await spawned_from_outside(app, boss, "!say x", mode="session", label="staying")
        ended = await spawned_from_outside(app, boss, "!say x", label="ended")
        await settle(app)
        posted = [await post(app, child["childSessionKey"], "!sleep 30") for child in (staying, ended)]
        queued = await post(app, staying["childSessionKey"], "!sleep 29")
        for each in posted:
            assert each.run_id is not None
            await until_running(app, each.run_id)
        listed: Any = await call(app, boss, "subagents", action="list")
        assert [(child["label"], child["status"]) for child in listed["children"]] == [
            ("staying", "running"),
            ("ended", "running"),
        ]
        assert all("endedAt" not in child for child in listed["children"])
        one = await call(app, boss, "subagents", action="cancel", target=staying["runId"])
        assert one["cancelled"] == [staying["childSessionKey"]]
        await wait_end(app, posted[0].run_id)
        rest = await call(app, boss, "subagents", action="cancel", target="all")
        assert rest["cancelled"] == [ended["childSessionKey"]]
        for each in (*posted, queued):
            assert (await wait_end(app, each.run_id)).status is RunStatus.CANCELLED
        assert (await call(app, boss, "subagents", action="cancel", target="all"))["cancelled"] == []


@requirement("spawn:8", "spawn:7")
async def test_an_older_result_that_is_owed_is_shown_before_a_newer_one_that_came(open_home: OpenHome) -> None:
    async with open_home(settings(**DEPTH)) as app:
        boss = await open_peer(app, "boss")
        child = await spawned_from_outside(app, boss, WAITING, mode="session", label="helper")
        await until_parked(app, child["childSessionKey"])
        second = await ask(app, child["childSessionKey"], "!say two")
        listed: Any = await call(app, boss, "subagents", action="list")
        assert [(each["runId"], each["status"]) for each in listed["children"]] == [(child["runId"], "running")]
        by_result = await call(app, boss, "subagents", action="list", target=second.id)
        assert by_result["count"] == 1
        answer = await call(app, boss, "subagents", action="cancel", target="all")
        assert answer["cancelled"] == [child["childSessionKey"]]
        assert (await wait_end(app, child["runId"])).status is RunStatus.CANCELLED
        await settle(app)
        listed = await call(app, boss, "subagents", action="list")
        assert [(each["runId"], each["status"]) for each in listed["children"]] == [(second.id, "ok")]


@requirement("spawn:8", "spawn:7")
async def test_nothing_follows_from_any_result_of_a_child_that_is_called_off(open_home: OpenHome) -> None:
    async with open_home(settings(**DEPTH)) as app:
        boss = await open_peer(app, "boss")
        child = await spawned(app, "boss", WAITING, mode="session", label="helper")
        key = child["childSessionKey"]
        await until_parked(app, key)
        second = await post(app, key, WAITING)
        await until(app, lambda runs: sum(run.session_key == key and run.is_parked for run in runs) == 2)
        await call(app, boss, "subagents", action="cancel", target="helper")
        for run_id in (RunId(child["runId"]), second.run_id):
            assert (await wait_end(app, run_id)).status is RunStatus.CANCELLED
        await settle(app)
        assert [record.has_run for record in await records(app, key_of("boss"))] == [False, False]
        assert await runs_of(app, key_of("boss")) == 1


@requirement("spawn:8")
async def test_a_waiting_child_is_steered_once_though_clocks_differ(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with open_home(settings(**DEPTH), Parts(clock=clock)) as app:
        boss = await open_peer(app, "boss")
        child = await spawned(app, "boss", "!say one", mode="session", label="helper")
        await settle(app)
        await post(app, child["childSessionKey"], WAITING)
        await until_parked(app, child["childSessionKey"])
        clock.pass_time(timedelta(seconds=-1))
        answers = [
            await call(app, boss, "subagents", key="same", action="steer", target="helper", message="more")
            for _ in range(2)
        ]
        assert answers[0]["status"] == "accepted" and answers[0] == answers[1]
        await call(app, boss, "subagents", action="cancel", target="all")
        await settle(app)


@requirement("spawn:8", "flow:4")
async def test_a_session_above_its_child_tells_it_nothing_more(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        boss = await open_peer(app, "boss")
        child = await spawned_from_outside(app, boss, "!say one", mode="session", label="helper")
        await settle(app)
        await app.database.run(rows.set_taint, boss.id, Classification(Level.CONFIDENTIAL))
        refused = await call(app, boss, "subagents", action="steer", target="helper", message="the secret")
        assert (refused["status"], refused["code"]) == ("forbidden", "write_down")
        assert "the secret" not in texts(await read_log(app, child["childSessionKey"]))


@requirement("spawn:8")
async def test_a_long_list_leaves_out_hidden_and_ended_children_first(open_home: OpenHome) -> None:
    runner = HeldRunner()
    children = settings(agents__defaults__subagents__max_children_per_agent=1000)
    async with open_home(children, Parts(runner=runner)) as app:
        boss = await open_peer(app, "boss")
        runs: list[str] = []

        async def spawn(label: str) -> str:
            child = await spawned_from_outside(app, boss, "x", label=label)
            runs.append(child["runId"])
            return child["childSessionKey"]

        async def listed(**more: Any) -> tuple[list[str], bool]:
            answer: Any = await call(app, boss, "subagents", action="list", **more)
            assert answer["count"] == len(answer["children"])
            return [child["label"] for child in answer["children"]], answer.get("hasMore", False)

        await spawn("busy")
        await runner.until_begun(1)
        runner.release_later()
        ended = [f"ended {number}" for number in range(MAX_LISTED - 1)]
        for label in ended:
            await spawn(label)
        hidden = await spawn("hidden")
        for run_id in runs[1:]:
            await wait_end(app, RunId(run_id))
        await app.services.sessions.patch(OWNER, app.services.sessions.target(hidden), {"status": "inactive"})
        assert await listed() == (["busy", *ended], True)
        assert await listed(target="hidden") == (["hidden"], False)
        await spawn("newest")
        await wait_end(app, RunId(runs[-1]))
        assert await listed() == (["busy", *ended[1:], "newest"], True)
        await app.services.sessions.delete(OWNER, app.services.sessions.target(hidden))
        assert (await listed())[1]
        await call(app, boss, "subagents", action="cancel", target="all")
        await settle(app)


@requirement("spawn:8")
async def test_a_key_an_id_and_a_result_go_before_labels_that_spell_them(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        boss = await open_peer(app, "boss")
        child = await spawned_from_outside(app, boss, "!sleep 30", label="one")
        session = await session_of(app, child["childSessionKey"])
        for name in (str(session.key), session.id, child["runId"]):
            await spawned_from_outside(app, boss, "!sleep 30", label=name)
            listed: Any = await call(app, boss, "subagents", action="list", target=name)
            assert [each["sessionKey"] for each in listed["children"]] == [str(session.key)]
            told = await call(app, boss, "subagents", action="steer", target=name, message="!say x")
            assert told["childSessionKey"] == str(session.key)
        answer = await call(app, boss, "subagents", action="cancel", target=str(session.key))
        assert answer == {"status": "ok", "cancelled": [str(session.key)]}
        await call(app, boss, "subagents", action="cancel", target="all")
        await settle(app)


@requirement("spawn:8", "answers:2")
async def test_a_list_of_an_unknown_child_says_so_and_all_names_each(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        boss, other = await open_peer(app, "boss"), await open_peer(app, "other")
        empty: dict[str, Any] = {"count": 0, "children": []}
        assert await call(app, boss, "subagents", action="list", target="all") == empty
        keys = [(await spawned_from_outside(app, boss, "!say x", label="twin"))["childSessionKey"] for _ in range(2)]
        for target in ("all", "twin", " twin "):
            listed: Any = await call(app, boss, "subagents", action="list", target=target)
            assert [each["sessionKey"] for each in listed["children"]] == keys
        listing, cancelling = [
            [
                await call(app, other, "subagents", action=action, target=target)
                for target in ("nobody", "twin", keys[0])
            ]
            for action in ("list", "cancel")
        ]
        assert listing == cancelling and [answer["code"] for answer in listing] == ["not_found"] * 3
        await settle(app)


GUEST = Principal(PrincipalKind.GUEST, "eve")
ROOM = "agent:main:fake:group:room"
GUESTS_SPAWN: dict[str, Any] = {"access__roles__guest__tools": ["sessions_spawn", "gate"]}
"""Settings under which a guest may cause what is spawned here."""


def steer_directive(target: str, words: str) -> str:
    return "!call subagents " + json.dumps({"action": "steer", "target": target, "message": words})


async def open_room(app: App) -> None:
    """A group of the owner's, with a guest."""
    room = await open_peer(app, ROOM)
    await app.database.run(rows.add_participant, room.row, str(GUEST))


@requirement("spawn:8", "runs:4", "runs:7")
async def test_what_a_guest_says_joins_no_work_of_the_owners(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(**GUESTS_SPAWN), Parts(tools=[gates.tool])) as app:
        await open_room(app)
        await ask(app, ROOM, spawn_directive(wait_at("once", "mine"), label="once"))
        await ask(app, ROOM, spawn_directive(wait_at("staying", "mine too"), label="staying", mode="session"))
        await gates.until_reached("once")
        await gates.until_reached("staying")
        refused = await post(app, ROOM, steer_directive("once", "!say his"), principal=GUEST)
        assert json.loads((await wait_end(app, refused.run_id)).reply or "")["code"] == "others_work"
        queued = await post(app, ROOM, steer_directive("staying", "!say his"), principal=GUEST)
        accepted = json.loads((await wait_end(app, queued.run_id)).reply or "")
        assert accepted["status"] == "accepted", "a run of its own, after the other"
        gates.open("once")
        gates.open("staying")
        await settle(app)
        assert (await find_run(app, accepted["runId"])).principal == GUEST
        assert {record.result for record in await records(app, ROOM)} == {"mine", "mine too", "his"}


@requirement("spawn:8", "runs:7")
async def test_what_the_owner_says_joins_a_guests_work_which_keeps_the_guests_rights(open_home: OpenHome) -> None:
    gates = Gates()
    secret = "!call sessions_history " + json.dumps({"sessionKey": key_of("secret")})
    more: dict[str, Any] = {**GUESTS_SPAWN, "tools__subagents__tools": ["sessions_history"]}
    async with open_home(settings(**more), Parts(tools=[gates.tool])) as app:
        await open_room(app)
        await open_peer(app, "secret")
        await ask(app, key_of("secret"), "the owner's alone")
        spawning = await post(app, ROOM, spawn_directive(wait_at("guest"), label="guest"), principal=GUEST)
        await wait_end(app, spawning.run_id)
        await gates.until_reached("guest")
        told = await ask(app, ROOM, steer_directive("guest", secret))
        assert json.loads(told.reply or "")["status"] == "accepted"
        gates.open("guest")
        await settle(app)
        (record,) = await records(app, ROOM)
        assert "not_found" in record.result and "alone" not in record.result


@requirement("spawn:7", "runs:7")
async def test_results_are_answered_with_the_rights_of_whom_they_are_for(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(**GUESTS_SPAWN), Parts(tools=[gates.tool])) as app:
        await open_room(app)
        guests = await post(app, ROOM, spawn_directive(wait_at("guest", "his"), label="guest"), principal=GUEST)
        await wait_end(app, guests.run_id)
        await ask(app, ROOM, spawn_directive(wait_at("owner", "mine"), label="owner"))
        waiting = await post(app, ROOM, f"{spawn_directive(wait_at('last'), label='last')}\n{YIELD}")
        await until_parked(app, ROOM)
        gates.open("guest")
        gates.open("owner")
        await until(app, lambda runs: sum(run.status is RunStatus.OK and run.report is not None for run in runs) == 2)
        assert waiting.run_id is not None
        await app.services.runs.cancel(OWNER, waiting.run_id)
        await settle(app)
        room = await session_of(app, ROOM)
        answers = await app.services.runs.list(OWNER, RunFilter(session=room.row), limit=2)
        assert {(str(run.principal), run.reply) for run in answers} == {
            (str(GUEST), "echo: his"),
            (str(OWNER), "echo: mine"),
        }
