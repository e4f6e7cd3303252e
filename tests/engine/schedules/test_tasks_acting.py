"""Runs of tasks: what they may do; and sessions that make and see tasks. Contract: tasks 1, 2, approvals 3, 4."""

from typing import Any

import pytest

from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.approval import Verdict
from antiphon.domain.classification import PUBLIC, Classification, Level
from antiphon.domain.ids import TaskId
from antiphon.domain.message import ToolResult, UserMessage, text_content, text_of
from antiphon.domain.schedule import Schedule, parse_every
from antiphon.domain.session import DeliveryContext
from antiphon.domain.stored_task import NewTask, TaskEdit
from antiphon.domain.task import SlotOutcome, TaskState, Why
from antiphon.engine.access.caller import Caller
from antiphon.engine.sessions.inbox import Envelope
from antiphon.store import tasks
from antiphon.store.codec import place_text
from antiphon.store.database import Query, Transaction
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call, to_spawn
from tests.engine.approvals.test_approvals import Disk, pending
from tests.engine.deliveries.test_outgoing_flow import invite, link
from tests.engine.runs.test_classified_runs import BOOKS, PARTS
from tests.engine.stage import HeldRunner, ManualClock, find_run, read_log, wait_end
from tests.engine.tasks_bench import HOUR, Bench, bench, own_session, person, refused

pytestmark = pytest.mark.anyio


@requirement("approvals:3", "approvals:4")
async def test_a_task_passes_only_by_what_is_allowed_to_that_task(open_home: OpenHome) -> None:
    disk = Disk()
    async with bench(open_home, parts={"tools": disk.parts().tools}) as b:
        prompt = to_call("delete", name="old")
        task, other = await b.make(prompt), await b.make(prompt, name="two")
        await b.passes(HOUR)
        asked = {approval.session_key: approval for approval in await pending(b.app, 2)}
        assert asked.keys() == {str(task.key), str(other.key)} and disk.calls == []
        await b.passes(HOUR)  # the first ones still wait
        assert [slot.outcome for slot in await b.slots(task)] == [SlotOutcome.SKIPPED, None]
        await b.app.services.approvals.resolve(OWNER, asked[str(task.key)].id, Verdict.ALWAYS)
        await b.app.services.approvals.resolve(OWNER, asked[str(other.key)].id, Verdict.ONCE)
        await b.rests()
        assert disk.calls == ["delete old"] * 2
        await b.passes(HOUR)
        assert disk.calls == ["delete old"] * 3
        (waiting,) = await pending(b.app)
        assert waiting.session_key == str(other.key)
        await b.app.services.approvals.resolve(OWNER, waiting.id, Verdict.DENY)
        # Neither do the words of the task's maker pass.
        await b.app.services.inbox.post(OWNER, b.target(), text_content(prompt))
        (again,) = await pending(b.app)
        assert again.session_key == "agent:main:main" and disk.calls == ["delete old"] * 3
        (allowed,) = await b.app.services.standing_approvals.list(OWNER, before=None, limit=10)
        assert allowed.task == task.id
        await b.tasks.cancel(OWNER, task.id)
        assert await b.app.services.standing_approvals.list(OWNER, before=None, limit=10) == []


@requirement("approvals:4", "tasks:1")
async def test_what_is_allowed_to_a_task_ends_with_other_words_of_a_maker_who_allows_nothing(
    open_home: OpenHome,
) -> None:
    disk = Disk()
    async with bench(open_home, parts={"tools": disk.parts().tools}) as b:
        mum, prompt = await person(b, "mum"), to_call("delete", name="old")
        task = await b.make(prompt, by=mum, session=await own_session(b, mum))
        await b.passes(HOUR)
        (asked,) = await pending(b.app)
        await b.app.services.approvals.resolve(OWNER, asked.id, Verdict.ALWAYS)
        await b.rests()
        await b.tasks.edit(mum, task.id, TaskEdit(name="still the same"))
        await b.tasks.edit(OWNER, task.id, TaskEdit(prompt=f"{prompt}\n!say done"))
        await b.passes(HOUR)
        assert disk.calls == ["delete old"] * 2, "an owner's own change needs no second yes"
        await b.tasks.edit(mum, task.id, TaskEdit(prompt=f"{prompt}\n!say and more"))
        await b.passes(HOUR)
        (again,) = await pending(b.app)
        assert (again.session_key, disk.calls) == (str(task.key), ["delete old"] * 2)


@requirement("tasks:1", "approvals:4")
async def test_what_a_task_causes_belongs_to_it(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        task = await b.make(to_spawn("!say found it", label="child") + "\n!call sessions_yield {}")
        await b.passes(HOUR)
        assert await b.outcomes(task) == [(1, SlotOutcome.OK)]
        assert await b.app.database.read(_tasks_of_runs) == {("task", task.id), ("child", task.id)}
        (slot,) = await b.slots(task)
        run = await wait_end(b.app, slot.run)
        assert run.continued_by is not None and run.reply is not None and "found it" in run.reply


@requirement("flow:11", "flow:4", "tasks:1")
async def test_a_task_without_a_place_asks_at_its_hour_for_the_release_of_a_message(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with bench(open_home, parts={"tools": PARTS.tools, "channels": [channel]}) as b:
        await link(b.app, "+1", await invite(b.app, "Ann"))
        out = to_call("message", channel=NAME, recipient="Ann", text="Dinner is at eight.")
        task = await b.make(f"{BOOKS}\n{out}", send_to="log")
        assert task.place is None
        await b.passes(HOUR)
        (asked,) = await pending(b.app)
        (call,) = asked.calls
        assert asked.session_key == str(task.key) and call.release is not None
        assert call.release.question == "Not for everyone → Ann (fake)."
        await b.passes(HOUR)  # the first one still waits
        assert [slot.outcome for slot in await b.slots(task)] == [SlotOutcome.SKIPPED, None] and channel.asked == []
        await b.app.services.approvals.resolve(OWNER, asked.id, Verdict.ONCE)
        await channel.until_asked(1)
        await b.rests()
        assert channel.texts == ["Dinner is at eight."]
        await b.passes(HOUR)
        (again,) = await pending(b.app)
        await b.app.services.approvals.resolve(OWNER, again.id, Verdict.DENY)
        await b.rests()
        assert channel.texts == ["Dinner is at eight."]


async def _tasks_of_runs(query: Query) -> set[tuple[str, str | None]]:
    return {(purpose, task) for purpose, task in await query.fetch_all("SELECT purpose, task FROM runs")}


@requirement("tasks:2", "answers:3")
async def test_a_session_reaches_its_own_tasks_alone(open_home: OpenHome) -> None:
    async with bench(open_home, tools__sessions__visibility="all") as b:
        mum = await person(b, "mum")
        hers, theirs = await own_session(b, mum), await b.make(name="theirs")
        caller = await calling(b, hers, mum)
        assert await b.tasks.list(caller, limit=10) == []
        assert await refused(b.tasks.get(caller, theirs.id)) == "not_found"
        (made,) = await b.tasks.create(caller, None, [_new(b)], place=DeliveryContext(channel="fake", to="elsewhere"))
        assert (made.maker, made.session_key, made.place) == (mum, hers, None)
        assert [task.id for task in await b.tasks.list(caller, limit=10)] == [made.id]
        assert await refused(b.tasks.approve(caller, made.id)) == "forbidden"
        assert (await b.tasks.pause(caller, made.id)).state is TaskState.PAUSED
        owners = await calling(b, theirs.session_key, OWNER)
        assert [task.id for task in await b.tasks.list(owners, limit=10)] == [theirs.id]
        assert await refused(b.tasks.cancel(owners, made.id)) == "not_found"
        assert await refused(b.tasks.approve(owners, theirs.id)) == "forbidden"


@requirement("tasks:2")
async def test_a_session_that_a_task_asks_does_not_reach_the_task(open_home: OpenHome) -> None:
    settings: dict[str, Any] = {
        "agents__list": [{"id": "main"}, {"id": "botanist"}],
        "tools__sessions__visibility": "all",
        "tools__agent_to_agent__enabled": True,
    }
    async with bench(open_home, **settings) as b:
        await b.app.services.inbox.post(OWNER, b.target("agent:botanist:main"), text_content("!say hello"))
        await b.rests()
        for request in (to_call("tasks", action="list"), to_call("tasks", action="new", prompt="x", every="1h")):
            ask = to_call("sessions_send", sessionKey="agent:botanist:main", message=request)
            task = await b.make(ask)
            await b.tasks.approve(OWNER, task.id)
            await b.passes(HOUR)
            reply = (await find_run(b.app, (await b.slots(task))[0].run)).reply or ""
            assert ('\\"count\\":0' in reply or "task_in_task" in reply) and task.id not in reply
            await b.tasks.cancel(OWNER, task.id)
        # In its own session the task sees itself.
        task = await b.make(to_call("tasks", action="list"))
        await b.passes(HOUR)
        assert task.id in ((await find_run(b.app, (await b.slots(task))[0].run)).reply or "")


@requirement("access:4")
async def test_a_guests_session_makes_no_tasks(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        await b.make()
        caller = await calling(b, "agent:main:main", Principal.parse("person:nobody"))
        assert await refused(b.tasks.create(caller, None, [_new(b)])) == "forbidden"
        assert await refused(b.tasks.list(caller, limit=10)) == "forbidden"


def _new(b: Bench, name: str = "own") -> NewTask:
    return NewTask(name=name, prompt="look", schedule=Schedule(parse_every("1h", b.clock.now()), "UTC"))


async def calling(b: Bench, session: str, principal: Principal) -> Caller:
    """A call of the session from outside a run."""
    found = (await b.app.services.sessions.get(OWNER, b.target(session))).session
    return Caller(session=found.row, agent_id=found.agent_id, principal=principal, call_id="c-1", run=None)


@requirement("flow:2", "tasks:1")
async def test_the_prompt_carries_what_the_maker_had_read(open_home: OpenHome) -> None:
    secret = Classification(Level.CONFIDENTIAL)
    async with bench(open_home) as b:
        new = [_new(b, "secret plan")]
        (task,) = await b.tasks.create(OWNER, b.target(), new, route=secret)
        assert task.made_of == secret
        await b.passes(HOUR)
        words = [event.classification for event in await b.events(task) if isinstance(event.message, UserMessage)]
        assert words == [secret]
        session = (await b.app.services.sessions.get(OWNER, b.target(str(task.key)))).session
        # The key and the label are seen by readers who may not see the words.
        assert session.taint == secret and session.label is None and "secret" not in str(task.key)
        place = DeliveryContext(channel="fake", to="room")
        assert await refused(b.tasks.create(OWNER, b.target(), [_new(b, "x")], place=place, route=secret)) == (
            "above_clearance"
        )
        # A session below it does not see the task.
        assert await b.tasks.list(await calling(b, "agent:main:main", OWNER), limit=10) == []


@requirement("flow:2", "flow:8")
async def test_what_the_tool_shows_of_a_task_is_made_of_what_the_task_is(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        (task,) = await b.tasks.create(OWNER, b.target(), [_new(b)], route=PUBLIC.distrusted())
        calls = (
            to_call("tasks", action="list"),
            *(to_call("tasks", action=a, task=task.id) for a in ("pause", "cancel")),
        )
        for call in calls:
            # Each in a conversation that has read nothing before.
            await b.app.services.resets.reset(OWNER, b.target())
            await b.app.services.inbox.post(OWNER, b.target(), text_content(call))
            await b.rests()
        results = [event for event in await read_log(b.app, "main") if isinstance(event.message, ToolResult)]
        assert all("look" in text_of(event.message.content) for event in results if event.message is not None)
        assert [event.classification for event in results] == [PUBLIC.distrusted()] * 3


@requirement("flow:4", "flow:13")
async def test_a_turn_that_has_read_secrets_changes_no_open_task(open_home: OpenHome) -> None:
    secret = Envelope(classification=Classification(Level.CONFIDENTIAL))
    async with bench(open_home) as b:
        opened, (hidden,) = (
            await b.make(),
            await b.tasks.create(OWNER, b.target(), [_new(b)], route=secret.classification),
        )
        replies: list[str] = []
        for task in (opened, hidden):
            for action in ("pause", "cancel"):
                call = text_content(to_call("tasks", action=action, task=task.id))
                posted = await b.app.services.inbox.post(OWNER, b.target(), call, envelope=secret)
                replies.append((await wait_end(b.app, posted.run_id)).reply or "")
        assert ["write_down" in reply for reply in replies] == [True, True, False, False]
        (left,) = await b.tasks.list(OWNER, limit=10)
        assert (left.id, left.state) == (opened.id, TaskState.ACTIVE)


@requirement("tasks:1", "runs:8")
async def test_an_orderly_stop_is_no_crash_the_run_goes_on(open_home: OpenHome) -> None:
    clock, runner = ManualClock(), HeldRunner()
    async with bench(open_home, clock=clock, parts={"runner": runner}, gateway__drain_seconds=0) as b:
        task = await b.make("!say done")
        clock.pass_time(HOUR)
        await b.app.scheduler.settle_due()
        await runner.until_begun(1)
    async with bench(open_home, clock=clock) as b:
        await b.rests()
        assert await b.outcomes(task) == [(1, SlotOutcome.OK)]


@requirement("tasks:1")
async def test_a_task_made_by_a_sandboxed_session_runs_sandboxed(open_home: OpenHome) -> None:
    settings: dict[str, Any] = {"agents__defaults__sandbox__mode": "non-main"}
    async with bench(open_home, **settings) as b:
        mum = await person(b, "mum")
        key = await own_session(b, mum)
        (task,) = await b.tasks.create(await calling(b, key, mum), None, [_new(b)])
        assert task.is_sandboxed
        await b.passes(HOUR)
        assert (await find_run(b.app, (await b.slots(task))[0].run)).is_sandboxed


@requirement("flow:2", "tasks:1")
async def test_a_task_whose_place_lost_clearance_pauses(open_home: OpenHome) -> None:
    secret = Classification(Level.CONFIDENTIAL)
    async with bench(open_home) as b:
        (task,) = await b.tasks.create(OWNER, b.target(), [_new(b)], route=secret)
        await b.app.database.run(_send_to, task.id, DeliveryContext(channel="fake", to="room"))
        assert await refused(b.tasks.run(OWNER, task.id)) == "above_clearance"
        await b.passes(HOUR)
        paused = await b.tasks.get(OWNER, task.id)
        assert (paused.state, paused.why) == (TaskState.PAUSED, Why.PLACE)
        assert await b.outcomes(task) == [(1, SlotOutcome.SKIPPED)]


async def _send_to(tx: Transaction, id: TaskId, place: DeliveryContext) -> None:
    await tasks.change(tx, id, {"place": place_text(place)})
