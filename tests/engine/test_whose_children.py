"""Several runs of one session, each with children: what ends, waits, takes or tells one's leaves the others' alone."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from antiphon.app import App, Parts
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import RunId, SessionRow
from antiphon.domain.message import text_content
from antiphon.domain.run import QueueMode, RunStatus
from antiphon.domain.session import DeliveryContext, Session, SessionStatus
from antiphon.domain.targets import NamedTarget
from antiphon.engine.sessions.inbox import Envelope
from antiphon.engine.sessions.upkeep import Upkeep
from antiphon.store.runs import RunFilter
from antiphon.store.spawns import list_attachments
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.family import (
    NESTED,
    YIELD,
    children_of,
    records,
    session_of,
    skip_where_slots_stay,
    spawn_directive,
    spawned_from_outside,
    until,
    until_parked,
    until_running,
    write_script,
)
from tests.engine.gates import Gates, wait_at
from tests.engine.parley import call, key_of, open_peer, runs_of, set_place, settings, settle, target_of
from tests.engine.stage import ManualClock, ask, post, read_log, texts, wait_end

pytestmark = pytest.mark.anyio

BOSS = key_of("boss")


async def last_words(app: App) -> str:
    return texts(await read_log(app, BOSS))[-1]


async def listed_children(app: App, session: Session) -> list[Any]:
    answer: Any = await call(app, session, "subagents", action="list")
    return answer["children"]


async def record_of(app: App, result: str) -> str:
    (found,) = [record.text for record in await records(app, BOSS) if record.result == result]
    return found


# Cancelling.


@requirement("spawn:8", "runs:5")
@pytest.mark.parametrize("is_interrupted", [False, True], ids=["cancelled", "interrupted"])
async def test_who_cancels_one_run_leaves_the_children_of_another_at_work(
    open_home: OpenHome, is_interrupted: bool
) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        await ask(app, BOSS, f"{spawn_directive(wait_at('first', 'one'))}\n!say started")
        second = await post(app, BOSS, f"{spawn_directive('!sleep 60')}\n{wait_at('second')}")
        await gates.until_reached("second")
        assert second.run_id is not None
        if is_interrupted:
            await post(app, BOSS, "!say no, wait", mode=QueueMode.INTERRUPT)
        else:
            await app.services.runs.cancel(OWNER, second.run_id)
        assert (await wait_end(app, second.run_id)).status is RunStatus.CANCELLED
        await until(app, lambda runs: any(run.report and run.status is RunStatus.CANCELLED for run in runs))
        gates.open("first")
        await settle(app)
        assert await last_words(app) == "echo: one"
        assert sorted(record.has_run for record in await records(app, BOSS)) == [False, True]


@requirement("spawn:8", "runs:5")
async def test_who_cancels_one_run_leaves_what_another_that_yielded_waits_for(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        first = await post(app, BOSS, f"{spawn_directive(wait_at('first', 'one'))}\n{YIELD}")
        await until_parked(app, BOSS)
        second = await post(app, BOSS, f"{spawn_directive('!sleep 60')}\n{wait_at('second')}")
        await gates.until_reached("second")
        assert second.run_id is not None
        await app.services.runs.cancel(OWNER, second.run_id)
        await wait_end(app, second.run_id)
        gates.open("first")
        assert (await wait_end(app, first.run_id)).reply == "echo: one"
        await settle(app)


@requirement("spawn:7", "spawn:8", "runs:5")
@pytest.mark.parametrize("is_early", [False, True], ids=["result comes later", "result came before"])
async def test_who_cancels_a_run_that_yielded_frees_what_others_had_begun(open_home: OpenHome, is_early: bool) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        await ask(app, BOSS, f"{spawn_directive(wait_at('first', 'one'))}\n!say started")
        second = await post(app, BOSS, f"{spawn_directive('!sleep 60')}\n{YIELD}")
        await until_parked(app, BOSS)
        if is_early:
            gates.open("first")
            await until(app, lambda runs: any(run.reply == "one" for run in runs))
        assert second.run_id is not None
        await app.services.runs.cancel(OWNER, second.run_id)
        assert (await wait_end(app, second.run_id)).status is RunStatus.CANCELLED
        gates.open("first")
        await settle(app)
        assert "echo: one" in texts(await read_log(app, BOSS))
        assert "Status: cancelled" in await record_of(app, "(no output)")


@requirement("spawn:8", "runs:5")
async def test_who_cancels_a_run_leaves_what_others_asked_of_its_child(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        child = await spawned_from_outside(app, boss, "!say ready", mode="session", label="helper")
        await settle(app)
        asked = await post(app, child["childSessionKey"], wait_at("question", "answer"))
        await gates.until_reached("question")
        run = await post(app, BOSS, f"{spawn_directive('!sleep 60')}\n!sleep 60")
        await until(app, lambda runs: any(each.id == run.run_id and each.has_spawned for each in runs))
        assert run.run_id is not None
        await app.services.runs.cancel(OWNER, run.run_id)
        await wait_end(app, run.run_id)
        gates.open("question")
        assert (await wait_end(app, asked.run_id)).reply == "answer"
        await settle(app)


@requirement("spawn:8", "runs:5")
async def test_who_cancels_a_run_reaches_all_that_came_of_it(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(**NESTED), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        deep = spawn_directive(f"{spawn_directive(wait_at('deepest'))}\n{YIELD}")
        posted = await post(app, BOSS, f"{deep}\n{YIELD}")
        await gates.until_reached("deepest")
        await until(app, lambda runs: sum(run.is_parked for run in runs) == 2)
        assert posted.run_id is not None
        await app.services.runs.cancel(OWNER, posted.run_id)
        await settle(app)
        found = await app.services.runs.list(OWNER, RunFilter(), limit=20)
        assert {run.status for run in found if run.code != "yielded"} == {RunStatus.CANCELLED}
        assert not any(run.is_parked for run in found)


@requirement("spawn:8", "sessions:6")
async def test_a_reset_says_why_what_waited_has_ended(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        boss = await open_peer(app, "boss")
        posted = await post(app, BOSS, f"{spawn_directive('!sleep 60')}\n{YIELD}")
        await until_parked(app, BOSS)
        await app.services.resets.reset(OWNER, NamedTarget(boss.key, None))
        run = await wait_end(app, posted.run_id)
        assert (run.status, run.code) == (RunStatus.CANCELLED, "reset")


# Who is told.


@requirement("spawn:7", "spawn:8")
async def test_a_yield_leaves_to_another_place_what_is_to_be_told_there(open_home: OpenHome) -> None:
    channel, gates = FakeChannel(), Gates()
    async with open_home(settings(), Parts(channels=[channel], tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")

        async def ask_from(room: str, text: str) -> RunId | None:
            place = DeliveryContext(channel=NAME, to=room)
            inbox = app.services.inbox
            envelope = Envelope(place=place)
            return (await inbox.post(OWNER, target_of(app, boss), text_content(text), envelope=envelope)).run_id

        await wait_end(app, await ask_from("one", f"{spawn_directive(wait_at('first', 'for one'))}\n!say <NO_REPLY>"))
        second = await ask_from("two", f"{spawn_directive(wait_at('second', 'for two'))}\n{YIELD}")
        await until_parked(app, BOSS)
        gates.open("second")
        assert (await wait_end(app, second)).reply == "echo: for two"
        gates.open("first")
        await settle(app)
        await channel.until_asked(2)
        assert [(each.place.to, each.text) for each in channel.taken] == [("two", "echo: for two"), ("one", "for one")]


@requirement("spawn:8", "send:2")
async def test_a_request_of_another_session_is_not_answered_with_what_a_person_asked_for(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        await open_peer(app, "asker")
        await ask(app, BOSS, f"{spawn_directive(wait_at('person', 'for the person'))}\n!say started")
        message = f"{spawn_directive(wait_at('asker', 'for the asker'))}\n{YIELD}"
        send = "!call sessions_send " + json.dumps({"label": "boss", "message": message})
        asking = await post(app, key_of("asker"), send)
        await until_parked(app, BOSS)
        gates.open("asker")
        answer = json.loads((await wait_end(app, asking.run_id)).reply or "")
        assert answer["reply"] == "echo: for the asker"
        gates.open("person")
        await settle(app)
        assert "echo: for the person" in texts(await read_log(app, BOSS))


@requirement("spawn:8")
async def test_a_yield_goes_on_with_what_a_wait_of_its_own_step_took(open_home: OpenHome, tmp_path: Path) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        await ask(app, BOSS, f"{spawn_directive(wait_at('child', 'the result'))}\n!say started")
        (child,) = await listed_children(app, boss)
        calls = [{"name": "sessions_yield"}, {"name": "sessions_wait", "arguments": {"runIds": [child["runId"]]}}]
        model = write_script(tmp_path, [], [{"calls": calls}], [{"text": "It came."}])
        await app.services.sessions.patch(OWNER, NamedTarget(boss.key, None), {"model": model})
        posted = await post(app, BOSS, "go")
        await until(app, lambda runs: any(run.id == posted.run_id and run.waiting_for for run in runs))
        gates.open("child")
        assert (await wait_end(app, posted.run_id)).reply == "It came."
        await settle(app)


@requirement("spawn:7", "tools:1")
@pytest.mark.parametrize("is_nested", [False, True])
async def test_a_look_from_outside_takes_no_result_away_from_the_run_that_is_to_have_it(
    open_home: OpenHome, is_nested: bool
) -> None:
    gates = Gates()
    async with open_home(settings(**NESTED), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        task = f"{spawn_directive('!say found')}\n{wait_at('end', 'started')}"
        if is_nested:
            looking = await session_of(app, (await spawned_from_outside(app, boss, task))["childSessionKey"])
        else:
            await post(app, BOSS, task)
            looking = boss
        await gates.until_reached("end")
        (child,) = await listed_children(app, looking)
        await wait_end(app, child["runId"])
        seen: Any = await call(app, looking, "sessions_wait", runIds=[child["runId"]], timeoutSeconds=0)
        assert seen["runs"][0]["reply"] == "found"
        gates.open("end")
        await settle(app)
        if is_nested:
            assert [record.result for record in await records(app, BOSS)] == ["echo: found"]
        else:
            assert await last_words(app) == "echo: found"


@requirement("spawn:7", "spawn:8")
async def test_what_a_wait_takes_is_not_announced_by_a_turn_that_had_not_begun(
    open_home: OpenHome, database_section: DatabaseSection
) -> None:
    skip_where_slots_stay(database_section)
    channel, gates = FakeChannel(), Gates()
    async with open_home(settings(runs__max_concurrent=2), Parts(channels=[channel], tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        await set_place(app, boss, "the room", NAME)
        await ask(app, BOSS, f"{spawn_directive(wait_at('child', 'found'))}\n!say <NO_REPLY>")
        await post(app, "main", wait_at("blocker"))
        await gates.until_reached("child")
        await gates.until_reached("blocker")
        (child,) = await listed_children(app, boss)
        wait = f"!call sessions_wait {json.dumps({'runIds': [child['runId']]})}"
        waiting = await post(app, BOSS, f"{wait}\n!say It is found.")
        gates.open("child")
        await wait_end(app, waiting.run_id)
        gates.open("blocker")
        await settle(app)
        await channel.until_asked(1)
        assert channel.texts == ["It is found."]


@requirement("spawn:7", "sessions:6")
async def test_a_place_hears_nothing_more_of_a_conversation_that_was_begun_anew(
    open_home: OpenHome, database_section: DatabaseSection
) -> None:
    skip_where_slots_stay(database_section)
    channel, gates = FakeChannel(), Gates()
    async with open_home(settings(runs__max_concurrent=1), Parts(channels=[channel], tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        await set_place(app, boss, "the room", NAME)
        await ask(app, BOSS, f"{spawn_directive(wait_at('child', 'found'))}\n!say <NO_REPLY>")
        blocker = await post(app, "main", wait_at("blocker"))
        gates.open("child")
        await gates.until_reached("blocker")
        await app.services.resets.reset(OWNER, NamedTarget(boss.key, None))
        gates.open("blocker")
        await wait_end(app, blocker.run_id)
        await settle(app)
        (record,) = await records(app, BOSS)
        assert record.session_id == boss.id
    assert channel.texts == []


@requirement("spawn:8", "sessions:6")
async def test_a_yield_goes_on_with_nothing_of_an_earlier_conversation(open_home: OpenHome, tmp_path: Path) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        await ask(app, BOSS, f"{spawn_directive(wait_at('old', 'old words'))}\n!say started")
        await app.services.resets.reset(OWNER, NamedTarget(boss.key, None))
        spawn = {"name": "sessions_spawn", "arguments": {"task": wait_at("new", "new words")}}
        yields = [{"name": "sessions_yield"}, {"name": "gate", "arguments": {"name": "end"}}]
        model = write_script(tmp_path, [{"calls": [spawn]}, {"calls": yields}], [{"text": "It came."}])
        await app.services.sessions.patch(OWNER, NamedTarget(boss.key, None), {"model": model})
        posted = await post(app, BOSS, "go")
        await gates.until_reached("end")
        gates.open("old")
        await until(app, lambda runs: any(run.reply == "old words" for run in runs))
        gates.open("end")
        await until_parked(app, BOSS)
        gates.open("new")
        assert (await wait_end(app, posted.run_id)).reply == "It came."
        await settle(app)
        found = await records(app, BOSS)
        assert [(record.result, len(record.answers)) for record in found] == [("old words", 0), ("new words", 1)]


# What is kept.


@requirement("spawn:4", "spawn:7")
@pytest.mark.parametrize("has_ended", [False, True], ids=["ends later", "had ended"])
async def test_what_nobody_is_left_for_is_kept_and_its_child_put_away_in_its_time(
    open_home: OpenHome, has_ended: bool
) -> None:
    clock, gates = ManualClock(), Gates()
    files = [{"name": "a.txt", "content": "x"}]
    async with open_home(settings(), Parts(clock=clock, tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        if has_ended:
            spawn = spawn_directive("!say kept", attachments=files)
            run = await post(app, BOSS, f"{spawn}\n{wait_at('end')}")
            await gates.until_reached("end")
            await until(app, lambda runs: any(each.report and each.is_over for each in runs))
            assert run.run_id is not None
            (key,) = await children_of(app, "boss")
            await app.services.runs.cancel(OWNER, run.run_id)
            await wait_end(app, run.run_id)
        else:
            key = (await spawned_from_outside(app, boss, wait_at("child", "kept"), attachments=files))[
                "childSessionKey"
            ]
            await gates.until_reached("child")
        child = SessionRow((await session_of(app, key)).row)
        await app.services.sessions.delete(OWNER, NamedTarget(boss.key, None))
        gates.open("child")
        await settle(app)
        assert await app.database.read(list_attachments, child) == []
        if not has_ended:
            assert [run.reply for run in await app.services.runs.list(OWNER, RunFilter(is_kept=True), limit=9)] == [
                "kept"
            ]
        clock.pass_time(timedelta(minutes=61))
        await app.timers.settle_due()
        assert (await session_of(app, key)).status is SessionStatus.INACTIVE


@requirement("spawn:8", "config:1")
async def test_retention_leaves_what_a_run_that_waits_was_asked(open_home: OpenHome) -> None:
    clock, gates = ManualClock(), Gates()
    async with open_home(settings(), Parts(clock=clock, tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        await ask(app, BOSS, "long ago")
        posted = await post(app, BOSS, f"{spawn_directive(wait_at('child', 'found'))}\n{YIELD}")
        await until_parked(app, BOSS)
        clock.pass_time(timedelta(days=2))
        await ask(app, BOSS, "in between")
        retention = timedelta(days=1)
        assert await Upkeep(app.database, app.workspaces, clock, stale_after=None, retention=retention).prune() > 0
        first, *_ = texts(await read_log(app, BOSS))
        assert first.startswith("!call sessions_spawn")
        gates.open("child")
        assert (await wait_end(app, posted.run_id)).reply == "echo: found"


@requirement("spawn:1", "tools:1")
async def test_a_call_whose_child_was_deleted_is_still_that_call(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        boss = await open_peer(app, "boss")
        first = await call(app, boss, "sessions_spawn", key="k", task="!say once")
        await settle(app)
        key = str(first["childSessionKey"])
        await app.services.sessions.delete(OWNER, app.services.sessions.target(key))
        assert await call(app, boss, "sessions_spawn", key="k", task="!say once") == first
        other = await call(app, boss, "sessions_spawn", key="k", task="!say other")
        assert other["code"] == "idempotency_key_reused"
        assert await runs_of(app, BOSS) == 0


# Names.


@requirement("spawn:8")
async def test_a_childs_label_is_found_in_every_normal_form(open_home: OpenHome) -> None:
    decomposed, composed = "cafe\u0301", "caf\u00e9"
    async with open_home(settings()) as app:
        boss = await open_peer(app, "boss")
        child = await spawned_from_outside(app, boss, "!sleep 60", label=decomposed)
        await until_running(app, child["runId"])
        assert (await session_of(app, child["childSessionKey"])).label == composed
        for name in (decomposed, composed):
            told: Any = await call(app, boss, "subagents", action="steer", target=name, message="!say x")
            assert told["childSessionKey"] == child["childSessionKey"]
            sent: Any = await call(app, boss, "sessions_send", label=name, message="!say y", timeoutSeconds=0)
            assert sent["status"] == "accepted"
            listed: Any = await call(app, boss, "subagents", action="list", target=name)
            assert listed["count"] == 1
        wide = await call(app, boss, "sessions_spawn", task="x", label="\uff21\uff2c\uff2c")
        assert wide["code"] == "invalid_arguments"
        await call(app, boss, "subagents", action="cancel", target="all")
        await settle(app)


@requirement("spawn:7", "spawn:8")
async def test_a_child_that_stays_is_governed_by_who_gets_its_results(open_home: OpenHome) -> None:
    async with open_home(settings(**NESTED)) as app:
        boss = await open_peer(app, "boss")
        inner = spawn_directive("!say one", mode="session", label="inner")
        middle = await spawned_from_outside(app, boss, f"{inner}\n!say spawned", mode="session")
        await settle(app)
        (before,) = await listed_children(app, await session_of(app, middle["childSessionKey"]))
        await app.services.sessions.delete(OWNER, app.services.sessions.target(middle["childSessionKey"]))
        assert [child["sessionKey"] for child in await listed_children(app, boss)] == [before["sessionKey"]]
        await call(app, boss, "subagents", action="steer", target="inner", message="!say two")
        await settle(app)
        assert [record.result for record in await records(app, BOSS)][-1] == "two"
