"""Several runs of one session, each with children: what ends, waits, takes or tells one's leaves the others' alone."""

import json
from datetime import timedelta

import pytest

from antiphon.building import Parts
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.ids import RunId
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import RunStatus
from antiphon.domain.session import DeliveryContext, SessionStatus
from antiphon.engine.sessions.upkeep import Upkeep
from antiphon.store.spawns import list_attachments
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import YIELD, to_call, to_send, to_spawn, wait_at
from tests.engine.slots import skip_where_slots_stay
from tests.engine.stage import ManualClock
from tests.story import NESTED, telling

pytestmark = pytest.mark.anyio

# Cancelling.


@requirement("spawn:8", "runs:5")
@pytest.mark.parametrize("is_interrupted", [False, True], ids=["cancelled", "interrupted"])
async def test_who_cancels_one_run_leaves_the_children_of_another_at_work(
    open_home: OpenHome, is_interrupted: bool
) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        await boss.answers(to_spawn(wait_at("first", "one")), "!say started")
        second = await boss.hears(to_spawn("!sleep 60"), wait_at("second"))
        await story.comes_to("second")
        if is_interrupted:
            await boss.hears("!say no, wait", mode=QueueMode.INTERRUPT)
        else:
            await story.cancels(second)
        assert (await story.end_of(second)).status is RunStatus.CANCELLED
        await story.until(lambda runs: any(run.report and run.status is RunStatus.CANCELLED for run in runs))
        story.opens_gate("first")
        await story.settles()
        assert (await boss.texts())[-1] == "echo: one"
        assert sorted(record.has_run for record in await boss.records()) == [False, True]


@requirement("spawn:8", "runs:5")
async def test_who_cancels_one_run_leaves_what_another_that_yielded_waits_for(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        first = await boss.hears(to_spawn(wait_at("first", "one")), YIELD)
        await boss.parks()
        second = await boss.hears(to_spawn("!sleep 60"), wait_at("second"))
        await story.comes_to("second")
        await story.cancels(second)
        await story.end_of(second)
        story.opens_gate("first")
        assert (await story.end_of(first)).reply == "echo: one"
        await story.settles()


@requirement("spawn:7", "spawn:8", "runs:5")
@pytest.mark.parametrize("is_early", [False, True], ids=["result comes later", "result came before"])
async def test_who_cancels_a_run_that_yielded_frees_what_others_had_begun(open_home: OpenHome, is_early: bool) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        await boss.answers(to_spawn(wait_at("first", "one")), "!say started")
        second = await boss.hears(to_spawn("!sleep 60"), YIELD)
        await boss.parks()
        if is_early:
            story.opens_gate("first")
            await story.until(lambda runs: any(run.reply == "one" for run in runs))
        await story.cancels(second)
        assert (await story.end_of(second)).status is RunStatus.CANCELLED
        story.opens_gate("first")
        await story.settles()
        assert "echo: one" in await boss.texts()
        (cancelled,) = [record for record in await boss.records() if record.result == "(no output)"]
        assert "Status: cancelled" in cancelled.text


@requirement("spawn:8", "runs:5")
async def test_who_cancels_a_run_leaves_what_others_asked_of_its_child(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("!say ready", mode="session", label="helper")
        await story.settles()
        asked = await child.hears(wait_at("question", "answer"))
        await story.comes_to("question")
        run = await boss.hears(to_spawn("!sleep 60"), "!sleep 60")
        await story.until(lambda runs: any(each.id == run and each.has_spawned for each in runs))
        await story.cancels(run)
        await story.end_of(run)
        story.opens_gate("question")
        assert (await story.end_of(asked)).reply == "answer"
        await story.settles()


@requirement("spawn:8", "runs:5")
async def test_who_cancels_a_run_reaches_all_that_came_of_it(open_home: OpenHome) -> None:
    async with telling(open_home, **NESTED) as story:
        boss = await story.opens("boss")
        deep = to_spawn(f"{to_spawn(wait_at('deepest'))}\n{YIELD}")
        posted = await boss.hears(deep, YIELD)
        await story.comes_to("deepest")
        await story.until(lambda runs: sum(run.is_parked for run in runs) == 2)
        await story.cancels(posted)
        await story.settles()
        found = await story.runs()
        assert {run.status for run in found if run.code != "yielded"} == {RunStatus.CANCELLED}
        assert not any(run.is_parked for run in found)


@requirement("spawn:8", "sessions:6")
async def test_a_reset_says_why_what_waited_has_ended(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        posted = await boss.hears(to_spawn("!sleep 60"), YIELD)
        await boss.parks()
        await story.resets(boss)
        run = await story.end_of(posted)
        assert (run.status, run.code) == (RunStatus.CANCELLED, "reset")


# Who is told.


@requirement("spawn:7", "spawn:8")
async def test_a_yield_leaves_to_another_place_what_is_to_be_told_there(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with telling(open_home, Parts(channels=[channel])) as story:
        boss = await story.opens("boss")
        one, two = (DeliveryContext(channel=NAME, to=room) for room in ("one", "two"))
        await story.end_of(await boss.hears(to_spawn(wait_at("first", "for one")), "!say <NO_REPLY>", place=one))
        second = await boss.hears(to_spawn(wait_at("second", "for two")), YIELD, place=two)
        await boss.parks()
        story.opens_gate("second")
        assert (await story.end_of(second)).reply == "echo: for two"
        story.opens_gate("first")
        await story.settles()
        await channel.until_asked(2)
        assert [(each.place.to, each.text) for each in channel.taken] == [("two", "echo: for two"), ("one", "for one")]


@requirement("spawn:8", "send:2")
async def test_a_request_of_another_session_is_not_answered_with_what_a_person_asked_for(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        asker = await story.opens("asker")
        await boss.answers(to_spawn(wait_at("person", "for the person")), "!say started")
        asking = await asker.hears(to_send(to_spawn(wait_at("asker", "for the asker")), YIELD, label="boss"))
        await boss.parks()
        story.opens_gate("asker")
        answer = json.loads((await story.end_of(asking)).reply or "")
        assert answer["reply"] == "echo: for the asker"
        story.opens_gate("person")
        await story.settles()
        assert "echo: for the person" in await boss.texts()


@requirement("spawn:8")
async def test_a_yield_goes_on_with_what_a_wait_of_its_own_step_took(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        await boss.answers(to_spawn(wait_at("child", "the result")), "!say started")
        (child,) = await boss.lists_children()
        calls = [{"name": "sessions_yield"}, {"name": "sessions_wait", "arguments": {"runIds": [child["runId"]]}}]
        model = story.script([], [{"calls": calls}], [{"text": "It came."}])
        await boss.changes(model=model)
        posted = await boss.hears("go")
        await story.until(lambda runs: any(run.id == posted and run.waiting_for for run in runs))
        story.opens_gate("child")
        assert (await story.end_of(posted)).reply == "It came."
        await story.settles()


@requirement("spawn:7", "tools:1")
@pytest.mark.parametrize("is_nested", [False, True])
async def test_a_look_from_outside_takes_no_result_away_from_the_run_that_is_to_have_it(
    open_home: OpenHome, is_nested: bool
) -> None:
    async with telling(open_home, **NESTED) as story:
        boss = await story.opens("boss")
        task = f"{to_spawn('!say found')}\n{wait_at('end', 'started')}"
        if is_nested:
            looking = await boss.spawns(task)
        else:
            await boss.hears(task)
            looking = boss
        await story.comes_to("end")
        (child,) = await looking.lists_children()
        await story.end_of(RunId(child["runId"]))
        seen = await looking.calls("sessions_wait", runIds=[child["runId"]], timeoutSeconds=0)
        assert seen["runs"][0]["reply"] == "found"
        story.opens_gate("end")
        await story.settles()
        if is_nested:
            assert [record.result for record in await boss.records()] == ["echo: found"]
        else:
            assert (await boss.texts())[-1] == "echo: found"


@requirement("spawn:7", "spawn:8")
async def test_what_a_wait_takes_is_not_announced_by_a_turn_that_had_not_begun(
    open_home: OpenHome, database_section: DatabaseSection
) -> None:
    skip_where_slots_stay(database_section)
    channel = FakeChannel()
    async with telling(open_home, Parts(channels=[channel]), runs__max_concurrent=2) as story:
        boss = await story.opens("boss")
        await boss.speaks_at("the room", NAME)
        await boss.answers(to_spawn(wait_at("child", "found")), "!say <NO_REPLY>")
        await story.session("agent:main:main").hears(wait_at("blocker"))
        await story.comes_to("child")
        await story.comes_to("blocker")
        (child,) = await boss.lists_children()
        waiting = await boss.hears(to_call("sessions_wait", runIds=[child["runId"]]), "!say It is found.")
        story.opens_gate("child")
        await story.end_of(waiting)
        story.opens_gate("blocker")
        await story.settles()
        await channel.until_asked(1)
        assert channel.texts == ["It is found."]


@requirement("spawn:7", "sessions:6")
async def test_a_place_hears_nothing_more_of_a_conversation_that_was_begun_anew(
    open_home: OpenHome, database_section: DatabaseSection
) -> None:
    skip_where_slots_stay(database_section)
    channel = FakeChannel()
    async with telling(open_home, Parts(channels=[channel]), runs__max_concurrent=1) as story:
        boss = await story.opens("boss")
        await boss.speaks_at("the room", NAME)
        await boss.answers(to_spawn(wait_at("child", "found")), "!say <NO_REPLY>")
        blocker = await story.session("agent:main:main").hears(wait_at("blocker"))
        story.opens_gate("child")
        await story.comes_to("blocker")
        ended = await story.resets(boss)
        story.opens_gate("blocker")
        await story.end_of(blocker)
        await story.settles()
        (record,) = await boss.records()
        assert record.session_id == ended
    assert channel.texts == []


@requirement("spawn:8", "sessions:6")
async def test_a_yield_goes_on_with_nothing_of_an_earlier_conversation(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        await boss.answers(to_spawn(wait_at("old", "old words")), "!say started")
        await story.resets(boss)
        spawn = {"name": "sessions_spawn", "arguments": {"task": wait_at("new", "new words")}}
        yields = [{"name": "sessions_yield"}, {"name": "gate", "arguments": {"name": "end"}}]
        model = story.script([{"calls": [spawn]}, {"calls": yields}], [{"text": "It came."}])
        await boss.changes(model=model)
        posted = await boss.hears("go")
        await story.comes_to("end")
        story.opens_gate("old")
        await story.until(lambda runs: any(run.reply == "old words" for run in runs))
        story.opens_gate("end")
        await boss.parks()
        story.opens_gate("new")
        assert (await story.end_of(posted)).reply == "It came."
        await story.settles()
        found = await boss.records()
        assert [(record.result, len(record.answers)) for record in found] == [("old words", 0), ("new words", 1)]


# What is kept.


@requirement("spawn:4", "spawn:7")
@pytest.mark.parametrize("has_ended", [False, True], ids=["ends later", "had ended"])
async def test_what_nobody_is_left_for_is_kept_and_its_child_put_away_in_its_time(
    open_home: OpenHome, has_ended: bool
) -> None:
    clock = ManualClock()
    files = [{"name": "a.txt", "content": "x"}]
    async with telling(open_home, Parts(clock=clock)) as story:
        boss = await story.opens("boss")
        if has_ended:
            spawn = to_spawn("!say kept", attachments=files)
            run = await boss.hears(spawn, wait_at("end"))
            await story.comes_to("end")
            await story.until(lambda runs: any(each.report and each.is_over for each in runs))
            (child,) = await boss.children()
            await story.cancels(run)
            await story.end_of(run)
        else:
            child = await boss.spawns(wait_at("child", "kept"), attachments=files)
            await story.comes_to("child")
        row = (await child.session()).row
        await story.deletes(boss)
        story.opens_gate("child")
        await story.settles()
        assert await story.app.database.read(list_attachments, row) == []
        if not has_ended:
            assert await story.kept() == ["kept"]
        clock.pass_time(timedelta(minutes=61))
        await story.app.due_children.settle_due()
        assert (await child.session()).status is SessionStatus.INACTIVE


@requirement("spawn:8", "config:1")
async def test_retention_leaves_what_a_run_that_waits_was_asked(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with telling(open_home, Parts(clock=clock), limits__run__time_seconds=0) as story:
        boss = await story.opens("boss")
        await boss.answers("long ago")
        posted = await boss.hears(to_spawn(wait_at("child", "found")), YIELD)
        await boss.parks()
        clock.pass_time(timedelta(days=2))
        await boss.answers("in between")
        app, retention = story.app, timedelta(days=1)
        assert await Upkeep(app.database, app.workspaces, clock, stale_after=None, retention=retention).prune() > 0
        first, *_ = await boss.texts()
        assert first.startswith("!call sessions_spawn")
        story.opens_gate("child")
        assert (await story.end_of(posted)).reply == "echo: found"


@requirement("spawn:1", "tools:1")
async def test_a_call_whose_child_was_deleted_is_still_that_call(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        first = await boss.calls("sessions_spawn", key="k", task="!say once")
        await story.settles()
        await story.deletes(story.session(first["childSessionKey"]))
        assert await boss.calls("sessions_spawn", key="k", task="!say once") == first
        other = await boss.calls("sessions_spawn", key="k", task="!say other")
        assert other["code"] == "idempotency_key_reused"
        assert await boss.runs() == []


# Names.


@requirement("spawn:8")
async def test_a_childs_label_is_found_in_every_normal_form(open_home: OpenHome) -> None:
    decomposed, composed = "cafe\u0301", "caf\u00e9"
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("!sleep 60", label=decomposed)
        await story.until_running(child.run_id)
        assert (await child.session()).label == composed
        for name in (decomposed, composed):
            told = await boss.steers(name, "!say x")
            assert told["childSessionKey"] == child.key
            sent = await boss.calls("sessions_send", label=name, message="!say y", timeoutSeconds=0)
            assert sent["status"] == "accepted"
            assert len(await boss.lists_children(target=name)) == 1
        wide = await boss.calls("sessions_spawn", task="x", label="\uff21\uff2c\uff2c")
        assert wide["code"] == "invalid_arguments"
        await boss.cancels_children()
        await story.settles()


@requirement("spawn:7", "spawn:8")
async def test_a_child_that_stays_is_governed_by_who_gets_its_results(open_home: OpenHome) -> None:
    async with telling(open_home, **NESTED) as story:
        boss = await story.opens("boss")
        inner = to_spawn("!say one", mode="session", label="inner")
        middle = await boss.spawns(f"{inner}\n!say spawned", mode="session")
        await story.settles()
        (before,) = await middle.lists_children()
        await story.deletes(middle)
        assert [child["sessionKey"] for child in await boss.lists_children()] == [before["sessionKey"]]
        await boss.steers("inner", "!say two")
        await story.settles()
        assert [record.result for record in await boss.records()][-1] == "two"
