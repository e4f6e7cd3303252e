"""Results of children: the record, what follows it, waiting, yielding, nesting, cancelling, who gets what is left."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import psycopg
import pytest

from antiphon.agents.fence import DataFences
from antiphon.agents.prompt import Framing, prompt_entries
from antiphon.agents.sub_agents import ABOVE
from antiphon.agents.toolset import ToolContext
from antiphon.app import App, Parts
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.actor import OWNER
from antiphon.domain.event import EventType
from antiphon.domain.ids import ProcessId, RunId, SessionId, SessionRow
from antiphon.domain.message import ToolResult, UserMessage, text_of
from antiphon.domain.run import Outcome, Run, RunStatus
from antiphon.domain.session import SessionStatus, SessionType
from antiphon.domain.targets import NamedTarget
from antiphon.domain.transcript import Transcript
from antiphon.engine.ledger.fence import Claimant, Fence
from antiphon.engine.runs.lifecycle import Ended, FinishRun, claim, finish_run
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.codec import milliseconds
from antiphon.store.database import Transaction
from antiphon.store.runs import RunFilter
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.family import (
    NESTED,
    YIELD,
    children_of,
    count_owed,
    records,
    session_of,
    skip_where_slots_stay,
    spawn_directive,
    spawned,
    spawned_from_outside,
    until,
    until_parked,
    until_running,
)
from tests.engine.gates import Gates, wait_at
from tests.engine.parley import TURN, call, deliveries, key_of, open_peer, runs_of, set_place, settings, settle, steps
from tests.engine.stage import HeldRunner, ask, find_run, find_session, post, read_log, texts, wait_end
from tests.waiting import SECONDS

FENCES = DataFences(b"k" * 32, SessionId("api:x"))
pytestmark = pytest.mark.anyio

T = TypeVar("T")

CROWDED: dict[str, Any] = {
    **NESTED,
    "agents__defaults__subagents__max_children_per_agent": 30,
    "runs__max_concurrent": 4,
}


def wait_directive(*run_ids: str, **arguments: Any) -> str:
    return "!call sessions_wait " + json.dumps({"runIds": list(run_ids), **arguments})


def look() -> str:
    """Looks."""
    return "what it saw"


class Delegating:
    """A tool that spawns a child and waits for it, as two calls of a model would."""

    def __init__(self) -> None:
        self.app: App | None = None

    async def delegate(self, task: str, context: ToolContext, until_it_waits: bool = False) -> str:
        """Gives the task away and waits for its result."""
        assert self.app is not None
        spawn, wait = self.app.tools.find("sessions_spawn"), self.app.tools.find("sessions_wait")
        assert spawn is not None and wait is not None
        answer = json.loads((await spawn.call(context, {"task": task})).text)
        if until_it_waits:
            await until(self.app, lambda runs: any(run.id == answer["runId"] and run.waiting_for for run in runs))
        return (await wait.call(context, {"runIds": [answer["runId"]]})).text


async def boss_log(app: App) -> list[str]:
    return texts(await read_log(app, key_of("boss")))


async def statuses(app: App, name: str) -> list[RunStatus]:
    session = await find_session(app, name)
    found = await app.services.runs.list(OWNER, RunFilter(session=session.row), limit=100)
    return [run.status for run in found][::-1]


# The record, and what follows it.


@requirement("spawn:7")
async def test_results_that_come_while_their_requester_runs_start_one_run_when_it_ends(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        request = f"{spawn_directive('!say one')}\n{spawn_directive('!say two')}\n{wait_at('end')}\n!say spawned"
        posted = await post(app, key_of("boss"), request)
        await until(app, lambda runs: sum(run.report is not None and run.is_over for run in runs) == 2)
        gates.open("end")
        run = await wait_end(app, posted.run_id)
        await settle(app)
        found = await records(app, key_of("boss"))
        assert sorted(record.result for record in found) == ["one", "two"]
        assert not any(record.has_run or record.answers for record in found)
        log = await boss_log(app)
        assert log[-2].startswith("Results of sub-agents arrived") and log[-1].startswith("echo: ")
        assert sorted(log[-1].removeprefix("echo: ").split("\n")) == ["one", "two"]
        assert await runs_of(app, key_of("boss")) == 2 and run.reply == "spawned"


@requirement("spawn:7", "channels:1")
@pytest.mark.parametrize(
    ("task", "told"),
    [
        ("!say the result", ["the result"]),
        ("!announce In other words.\n!say the result", ["In other words."]),
        ("!announce ANNOUNCE_SKIP\n!say the result", []),
        ("!announce <NO_REPLY>\n!say the result", []),
    ],
)
async def test_a_requester_with_a_channel_has_one_message_in_the_childs_words(
    open_home: OpenHome, task: str, told: list[str]
) -> None:
    channel = FakeChannel()
    async with open_home(settings(), Parts(channels=[channel])) as app:
        boss = await open_peer(app, "boss")
        await set_place(app, boss, "the room", NAME)
        await ask(app, key_of("boss"), f"{spawn_directive(task)}\n!say <NO_REPLY>")
        await settle(app)
        await channel.until_asked(len(told))
        assert channel.texts == told
        (record,) = await records(app, key_of("boss"))
        assert record.result == "the result" and not record.has_run
        sent = await deliveries(app)
        assert [(delivery.session_key, delivery.place.to) for delivery in sent] == [
            (key_of("boss"), "the room") for _ in told
        ]
        assert await runs_of(app, key_of("boss")) == 1


@requirement("spawn:7", "channels:1")
@pytest.mark.parametrize(
    ("task", "told"), [("!say the result", "the result"), ("!announce In other words.\n!say x", "In other words.")]
)
async def test_a_child_that_is_quicker_than_its_requester_announces_its_result_as_well(
    open_home: OpenHome, task: str, told: str
) -> None:
    channel, gates = FakeChannel(), Gates()
    async with open_home(settings(), Parts(channels=[channel], tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        await set_place(app, boss, "the room", NAME)
        posted = await post(app, key_of("boss"), f"{spawn_directive(task)}\n{wait_at('end')}\n!say <NO_REPLY>")
        await until_children_ended(app, "boss")
        gates.open("end")
        run = await wait_end(app, posted.run_id)
        (record,) = await records(app, key_of("boss"))
        quicker = await find_run(app, RunId(record.id))
        assert quicker.ended_at is not None and run.ended_at is not None and quicker.ended_at < run.ended_at
        await settle(app)
        await channel.until_asked(1)
        assert channel.texts == [told]
        (child,) = await children_of(app, "boss")
        assert record.text in texts(await read_log(app, str((await session_of(app, child)).key)))


@requirement("spawn:7")
@pytest.mark.parametrize("is_quicker", [False, True], ids=["child ends later", "child ends first"])
async def test_where_the_announce_turn_fails_the_record_is_sent(open_home: OpenHome, is_quicker: bool) -> None:
    channel, gates = FakeChannel(), Gates()
    slow = wait_at("later")
    async with open_home(settings(), Parts(channels=[channel], tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        await set_place(app, boss, "the room", NAME)
        task, rest = ("!say the result", slow) if is_quicker else (slow, "")
        posted = await post(app, key_of("boss"), f"{spawn_directive(task)}\n{rest}\n!say <NO_REPLY>")
        if is_quicker:
            (child,) = await until_children_ended(app, "boss")
        else:
            await wait_end(app, posted.run_id)
            (child,) = await children_of(app, "boss")
        await app.services.sessions.patch(
            OWNER, NamedTarget((await session_of(app, child)).key, None), {"model": "no:m"}
        )
        gates.open("later")
        await settle(app)
        await channel.until_asked(1)
        (record,) = await records(app, key_of("boss"))
        assert channel.texts == [record.text]


@requirement("spawn:7")
async def test_the_message_goes_where_the_answers_went_when_the_child_was_spawned(open_home: OpenHome) -> None:
    channel, gates = FakeChannel(), Gates()
    async with open_home(settings(), Parts(channels=[channel], tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        await set_place(app, boss, "before", NAME)
        await ask(app, key_of("boss"), f"{spawn_directive(wait_at('child'))}\n!say <NO_REPLY>")
        await set_place(app, boss, "after", NAME)
        gates.open("child")
        await settle(app)
        await channel.until_asked(1)
        assert [delivery.place.to for delivery in channel.taken] == ["before"]


@requirement("spawn:7")
@pytest.mark.parametrize(
    ("task", "status", "result"),
    [
        ("!fail the model broke", "error: the model broke", "(no output)"),
        ("!say", "ok", "(no output)"),
        ("!say <NO_REPLY>", "ok", "(no output)"),
        ("!call look {}\n!say <NO_REPLY>", "ok", "what it saw"),
    ],
)
async def test_the_record_tells_the_runtimes_status_and_the_reply_else_the_newest_tool_result(
    open_home: OpenHome, task: str, status: str, result: str
) -> None:
    async with open_home(settings(), Parts(tools=[look])) as app:
        boss = await open_peer(app, "boss")
        await spawned_from_outside(app, boss, task)
        await settle(app)
        (record,) = await records(app, key_of("boss"))
        assert f"\nStatus: {status}" in record.text
        assert record.result == result


@requirement("spawn:7", "sessions:6")
async def test_a_result_that_comes_after_a_reset_goes_to_the_old_incarnation_and_starts_nothing(
    open_home: OpenHome,
) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        await spawned(app, "boss", wait_at("child", "late"))
        await app.services.resets.reset(OWNER, NamedTarget(boss.key, None))
        gates.open("child")
        await settle(app)
        (record,) = await records(app, key_of("boss"))
        assert record.result == "late" and not record.has_run
        assert record.session_id == boss.id
        assert await runs_of(app, key_of("boss")) == 1
        of_old = await app.services.history.page(OWNER, app.services.sessions.target(boss.id), limit=10)
        assert texts(of_old.events)[-1] == record.text


@requirement("spawn:7", "sessions:7")
async def test_a_deleted_requesters_results_go_to_its_own_requester_else_they_are_kept(open_home: OpenHome) -> None:
    gates, task = Gates(), wait_at("grandchild", "done")
    async with open_home(settings(**CROWDED), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        await spawned(app, "boss", f"{spawn_directive(task)}\n{YIELD}", mode="session")
        (middle,) = await children_of(app, "boss")
        await until_parked(app, middle)
        delete = app.services.sessions.delete
        await delete(OWNER, NamedTarget((await session_of(app, middle)).key, None))
        (gone,) = await records(app, key_of("boss"))
        assert "Status: error: The session was deleted." in gone.text
        listed: Any = await call(app, boss, "subagents", action="list")
        assert [child["task"] for child in listed["children"]] == [task.replace("\n", " ")]
        gates.open("grandchild")
        await settle(app)
        assert [record.result for record in await records(app, key_of("boss"))][1:] == ["done"]
        await spawned_from_outside(app, boss, wait_at("child", "for nobody"))
        await delete(OWNER, NamedTarget(boss.key, None))
        gates.open("child")
        await settle(app)
        kept = await app.services.runs.list(OWNER, RunFilter(is_kept=True), limit=10)
        assert [run.reply for run in kept] == ["for nobody"]


@requirement("spawn:7", "sessions:7")
async def test_what_was_recorded_is_answered_though_its_child_is_deleted_meanwhile(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        posted = await post(app, key_of("boss"), f"{spawn_directive('!say kept')}\n{wait_at('end')}\n!say spawned")
        (child,) = await until_children_ended(app, "boss")
        await app.services.sessions.delete(OWNER, NamedTarget((await session_of(app, child)).key, None))
        gates.open("end")
        assert (await wait_end(app, posted.run_id)).reply == "spawned"
        await settle(app)
        assert (await boss_log(app))[-1] == "echo: kept"


@requirement("spawn:7", "sessions:7")
async def test_an_announcement_of_a_deleted_child_is_answered_by_its_requester(
    open_home: OpenHome, database_section: DatabaseSection
) -> None:
    skip_where_slots_stay(database_section)
    channel, gates = FakeChannel(), Gates()
    async with open_home(settings(runs__max_concurrent=1), Parts(channels=[channel], tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        await set_place(app, boss, "the room", NAME)
        await ask(app, key_of("boss"), f"{spawn_directive(wait_at('child', 'done'))}\n!say <NO_REPLY>")
        blocker = await post(app, "main", "!sleep 60")
        gates.open("child")
        (child,) = await until_children_ended(app, "boss")
        assert blocker.run_id is not None
        await until_running(app, blocker.run_id)
        await app.services.sessions.delete(OWNER, NamedTarget((await session_of(app, child)).key, None))
        await app.services.runs.cancel(OWNER, blocker.run_id)
        await settle(app)
        await channel.until_asked(1)
        assert channel.texts == ["echo: done"]


@requirement("spawn:7", "runs:5")
async def test_a_cancelled_run_does_not_answer_what_came_before(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        await open_peer(app, "boss")
        posted = await post(app, key_of("boss"), f"{spawn_directive('!say early')}\n!sleep 60")
        await until_children_ended(app, "boss")
        assert posted.run_id is not None
        await app.services.runs.cancel(OWNER, posted.run_id)
        await settle(app)
        assert await statuses(app, key_of("boss")) == [RunStatus.CANCELLED]
        assert [record.result for record in await records(app, key_of("boss"))] == ["early"]


@requirement("spawn:7")
async def test_a_record_counts_what_all_runs_of_the_work_used(open_home: OpenHome) -> None:
    async with open_home(settings(**CROWDED)) as app:
        boss = await open_peer(app, "boss")
        await spawned_from_outside(app, boss, f"{spawn_directive('!sleep 0.2')}\n{YIELD}")
        await settle(app)
        (child,) = await children_of(app, "boss")
        found = await app.services.runs.list(OWNER, RunFilter(session=(await session_of(app, child)).row), limit=10)
        assert len(found) == 2 and all(run.usage.input_tokens for run in found)
        (record,) = await records(app, key_of("boss"))
        assert f"tokens {sum(run.usage.input_tokens for run in found)} in" in record.text


@requirement("spawn:7", "spawn:8")
async def test_a_result_that_nobody_is_left_for_is_that_of_the_continuation(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(**CROWDED), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        await spawned_from_outside(app, boss, f"{spawn_directive(wait_at('grandchild', 'done'))}\n{YIELD}")
        (child,) = await children_of(app, "boss")
        await until_parked(app, child)
        await app.services.sessions.delete(OWNER, NamedTarget(boss.key, None))
        gates.open("grandchild")
        await settle(app)
        kept = await app.services.runs.list(OWNER, RunFilter(is_kept=True), limit=10)
        assert [run.reply for run in kept] == ["echo: done"]


async def until_children_ended(app: App, requester: str) -> list[str]:
    """The session's children, once it has some and their first runs have ended."""
    with anyio.fail_after(SECONDS):
        while True:
            children = await children_of(app, requester)
            found = [run for child in children for run in await runs_of_child(app, child)]
            if found and all(run.status.is_terminal for run in found if run.report is not None):
                return children
            await anyio.lowlevel.checkpoint()


async def runs_of_child(app: App, key: str) -> list[Run]:
    return await app.services.runs.list(OWNER, RunFilter(session=(await session_of(app, key)).row), limit=10)


# Waiting.


@requirement("spawn:8", "runs:1")
async def test_a_run_waits_for_its_children_without_a_slot_and_what_it_took_is_not_announced(
    open_home: OpenHome,
) -> None:
    tool = Delegating()
    async with open_home(settings(runs__max_concurrent=1), Parts(tools=[tool.delegate])) as app:
        tool.app = app
        await open_peer(app, "boss")
        run = await ask(app, key_of("boss"), '!call delegate {"task": "!say slow"}')
        (entry,) = json.loads(run.reply or "")["runs"]
        assert (entry["status"], entry["reply"]) == ("ok", "slow")
        await settle(app)
        assert [record.has_run for record in await records(app, key_of("boss"))] == [False]
        assert await runs_of(app, key_of("boss")) == 1


@requirement("spawn:8")
@pytest.mark.parametrize("is_first", [True, False], ids=["record first", "wait first"])
async def test_a_prompt_tells_a_result_that_a_wait_brought_once(open_home: OpenHome, is_first: bool) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        answer = await spawned(app, "boss", wait_at("child", "fortytwo"))
        if is_first:
            gates.open("child")
            await settle(app)
        posted = await post(app, key_of("boss"), wait_directive(answer["runId"]))
        if not is_first:
            await until(app, lambda runs: any(run.waiting_for for run in runs))
            gates.open("child")
        waiting = await wait_end(app, posted.run_id)
        transcript = Transcript()
        transcript.add(await read_log(app, key_of("boss")))
        shown = prompt_entries(transcript.prompt_for(waiting.id), Framing(SessionType.DIRECT, FENCES))
    (told,) = (text_of(entry.content) for entry in shown if isinstance(entry, UserMessage) and entry.report)
    (waited,) = (
        text_of(entry.content) for entry in shown if isinstance(entry, ToolResult) and entry.tool == "sessions_wait"
    )
    assert "fortytwo" in waited and "Status: ok" in told
    assert (told.count("fortytwo"), told.count(ABOVE)) == ((1, 0) if is_first else (0, 1))


@requirement("spawn:8")
async def test_one_of_several_is_enough_where_any_is_asked_for(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        boss = await open_peer(app, "boss")
        slow = await spawned_from_outside(app, boss, "!sleep 30")
        await until_running(app, slow["runId"])
        quick = await spawned_from_outside(app, boss, "!say quick")
        run = await ask(app, key_of("boss"), wait_directive(slow["runId"], quick["runId"], mode="any"))
        answer = json.loads(run.reply or "")
        assert answer["status"] == "ok"
        assert [entry["status"] for entry in answer["runs"]] == ["running", "ok"]
        await call(app, boss, "subagents", action="cancel", target="all")
        await settle(app)


@requirement("spawn:8")
async def test_a_wait_that_times_out_tells_what_there_is_and_the_rest_comes_by_itself(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        first = await spawned(app, "boss", wait_at("child", "late"))
        await gates.until_reached("child")
        run = await ask(app, key_of("boss"), wait_directive(first["runId"], timeoutSeconds=0.05))
        answer = json.loads(run.reply or "")
        assert (answer["status"], answer["code"]) == ("timeout", "timeout")
        assert answer["runs"] == [{"runId": first["runId"], "status": "running"}]
        gates.open("child")
        await settle(app)
        assert (await boss_log(app))[-1] == "echo: late"


@requirement("spawn:8", "answers:2")
async def test_runs_of_others_and_runs_that_do_not_exist_get_one_answer(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        boss, stranger = await open_peer(app, "boss"), await open_peer(app, "stranger")
        theirs = await spawned_from_outside(app, stranger, "!say x")
        own = await post(app, key_of("boss"), "hello")
        await settle(app)
        told: list[str] = []
        for run_id in (theirs["runId"], "run_" + "0" * 31, str(own.run_id)):
            answer = await call(app, boss, "sessions_wait", runIds=[run_id])
            told.append(json.dumps(answer).replace(run_id, "RUN"))
        assert len(set(told)) == 1 and '"not_found"' in told[0]


@requirement("spawn:8", "send:7")
async def test_a_wait_that_would_never_end_is_refused_at_once(open_home: OpenHome) -> None:
    tool = Delegating()
    async with open_home(settings(), Parts(tools=[tool.delegate])) as app:
        tool.app = app
        await open_peer(app, "boss")
        question = {"sessionKey": "parent", "message": "may I", "timeoutSeconds": 60}
        task = f"!call sessions_send {json.dumps(question)}"
        run = await ask(app, key_of("boss"), "!call delegate " + json.dumps({"task": task, "until_it_waits": True}))
        assert json.loads(run.reply or "")["code"] == "wait_cycle"
        await settle(app)
        (record,) = await records(app, key_of("boss"))
        assert json.loads(record.result)["reply"] == "echo: may I"


@requirement("spawn:8")
async def test_a_wait_from_outside_is_answered_too_and_a_yield_from_outside_is_no_run(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        boss = await open_peer(app, "boss")
        first = await spawned_from_outside(app, boss, "!sleep 0.1\n!say x")
        answer: Any = await call(app, boss, "sessions_wait", runIds=[first["runId"]])
        assert answer["runs"][0]["reply"] == "x"
        refused = await call(app, boss, "sessions_yield")
        assert (refused["status"], refused["code"]) == ("error", "no_run")


# Yielding and nesting.


@requirement("spawn:8")
async def test_a_yield_goes_on_once_with_all_results_and_whoever_waits_gets_its_result(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        spawning = "\n".join(spawn_directive(wait_at(name, name)) for name in "123")
        posted = await post(app, key_of("boss"), f'{spawning}\n!call sessions_yield {{"message": "wait"}}')
        await until_parked(app, key_of("boss"))
        for count, name in enumerate("123", 1):
            gates.open(name)
            await until(
                app, lambda runs, count=count: sum(run.report is not None and run.is_over for run in runs) == count
            )
        run = await wait_end(app, posted.run_id)
        assert run.reply == "echo: 1\n2\n3"
        await settle(app)
        first = await app.services.runs.get(OWNER, run.id)
        assert (first.status, first.code, first.reply) == (RunStatus.OK, "yielded", "wait")
        assert first.continued_by is not None and not first.is_parked
        found = await records(app, key_of("boss"))
        assert [record.has_run for record in found] == [False, False, True]
        assert await runs_of(app, key_of("boss")) == 2


class Hesitating:
    """A tool that yields, and returns when the test lets it."""

    def __init__(self) -> None:
        self.app: App | None = None
        self.has_yielded, self.may_return = anyio.Event(), anyio.Event()

    async def hesitate(self, context: ToolContext) -> str:
        """Yields."""
        assert self.app is not None
        tool = self.app.tools.find("sessions_yield")
        assert tool is not None
        await tool.call(context, {})
        self.has_yielded.set()
        await self.may_return.wait()
        return "yielded"


@requirement("spawn:8")
@pytest.mark.parametrize("is_from_outside", [False, True])
async def test_a_child_that_ends_between_the_yield_and_the_end_of_the_run_is_gone_on_with(
    open_home: OpenHome, is_from_outside: bool
) -> None:
    tool = Hesitating()
    async with open_home(settings(), Parts(tools=[tool.hesitate])) as app:
        tool.app = app
        boss = await open_peer(app, "boss")
        task = "!sleep 30"
        child = await (spawned_from_outside(app, boss, task) if is_from_outside else spawned(app, "boss", task))
        before = await runs_of(app, key_of("boss"))
        posted = await post(app, key_of("boss"), "!call hesitate {}\n!say yields")
        await tool.has_yielded.wait()
        await app.services.runs.cancel(OWNER, child["runId"])
        await wait_end(app, child["runId"])
        tool.may_return.set()
        run = await wait_end(app, posted.run_id)
        assert run.reply == "echo: (no output)"
        assert await runs_of(app, key_of("boss")) == before + 2
        (record,) = await records(app, key_of("boss"))
        assert not record.has_run


@requirement("spawn:8", "sessions:6")
async def test_a_parked_run_of_a_session_that_was_reset_is_not_continued(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        posted = await post(app, key_of("boss"), f"{spawn_directive(wait_at('child'))}\n{YIELD}")
        await until_parked(app, key_of("boss"))
        await app.services.resets.reset(OWNER, NamedTarget(boss.key, None))
        gates.open("child")
        run = await wait_end(app, posted.run_id)
        assert run.status is RunStatus.CANCELLED


@requirement("spawn:8", "runs:6")
async def test_a_continuation_has_the_deadline_of_the_run_that_yielded(open_home: OpenHome) -> None:
    async with open_home(settings(limits__run__time_seconds=60)) as app:
        await open_peer(app, "boss")
        posted = await post(app, key_of("boss"), f"{spawn_directive('!sleep 0.2')}\n{YIELD}")
        await wait_end(app, posted.run_id)
        assert posted.run_id is not None
        first = await app.services.runs.get(OWNER, posted.run_id)
        assert first.continued_by is not None and first.deadline is not None
        assert (await app.services.runs.get(OWNER, first.continued_by)).deadline == first.deadline


@requirement("spawn:8")
async def test_there_is_nothing_to_yield_for_without_children(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        run = await ask(app, "main", YIELD)
        assert json.loads(run.reply or "")["code"] == "nothing_to_wait_for"


@requirement("spawn:8")
async def test_a_yield_does_not_go_on_with_what_a_wait_took(open_home: OpenHome) -> None:
    tool = Delegating()
    async with open_home(settings(), Parts(tools=[tool.delegate])) as app:
        tool.app = app
        await open_peer(app, "boss")
        run = await ask(app, key_of("boss"), f'!call delegate {{"task": "!say taken"}}\n{YIELD}')
        assert json.loads(run.reply or "")["code"] == "nothing_to_wait_for"
        await settle(app)
        assert await runs_of(app, key_of("boss")) == 1


@requirement("spawn:8")
async def test_what_a_run_owes_follows_its_continuation(open_home: OpenHome) -> None:
    """A session asked by another spawns, yields, and answers the other with what came of it."""
    async with open_home(settings()) as app:
        await open_peer(app, "boss")
        await open_peer(app, "expert")
        message = f"{spawn_directive('!sleep 0.2')}\n{YIELD}"
        send = "!call sessions_send " + json.dumps({"label": "expert", "message": message})
        answer = json.loads((await ask(app, key_of("boss"), send)).reply or "")
        assert (answer["status"], answer["reply"]) == ("ok", "echo: done")


@requirement("spawn:8", "send:5")
async def test_a_request_that_is_not_waited_for_is_answered_by_the_continuation(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        await open_peer(app, "boss")
        await open_peer(app, "expert")
        message = f"{spawn_directive('!sleep 0.2')}\n{YIELD}"
        send = "!call sessions_send " + json.dumps({"label": "expert", "message": message, "timeoutSeconds": 0})
        await ask(app, key_of("boss"), send)
        await settle(app)
        assert await steps(app, key_of("boss")) == [(TURN, 1, "echo: done")]


@requirement("spawn:8", "runs:6")
async def test_a_yielded_run_out_of_time_takes_its_children_with_it(open_home: OpenHome) -> None:
    async with open_home(settings(limits__run__time_seconds=4)) as app:
        await open_peer(app, "boss")
        posted = await post(app, key_of("boss"), f"{spawn_directive('!sleep 30', runTimeoutSeconds=0)}\n{YIELD}")
        run = await wait_end(app, posted.run_id)
        assert run.status is RunStatus.TIMEOUT
        await settle(app)
        (record,) = await records(app, key_of("boss"))
        assert "Status: timeout" in record.text or "Status: cancelled" in record.text


@requirement("spawn:7")
async def test_a_child_reports_once_when_those_that_it_spawned_have_ended(open_home: OpenHome) -> None:
    async with open_home(settings(**CROWDED)) as app:
        await open_peer(app, "boss")
        task = f"{spawn_directive('!sleep 1.2', label='a')}\n{spawn_directive('!sleep 1', label='b')}\n!say too early"
        posted = await post(app, key_of("boss"), f"{spawn_directive(task)}\n{YIELD}")
        run = await wait_end(app, posted.run_id)
        assert run.reply == "echo: echo: done\ndone"
        await settle(app)
        (record,) = await records(app, key_of("boss"))
        (child,) = await children_of(app, "boss")
        assert record.result == "echo: done\ndone"
        assert len(await records(app, child)) == 2 and await runs_of(app, child) == 2


@requirement("spawn:7")
async def test_each_run_of_a_child_that_stays_reports(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        boss = await open_peer(app, "boss")
        first = await spawned_from_outside(app, boss, "!say one", mode="session", label="helper")
        await settle(app)
        await ask(app, first["childSessionKey"], "!say two")
        steered = await call(app, boss, "subagents", action="steer", target="helper", message="!say three")
        assert steered["status"] == "accepted" and steered["runId"] != first["runId"]
        await settle(app)
        assert [record.result for record in await records(app, key_of("boss"))] == ["one", "two", "three"]


# Governing.


@requirement("spawn:8")
async def test_children_are_listed_with_what_became_of_them(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        boss, stranger = await open_peer(app, "boss"), await open_peer(app, "stranger")
        done = await spawned_from_outside(app, boss, "!say x", label="done")
        await wait_end(app, done["runId"])
        busy = await spawned_from_outside(app, boss, "!sleep 30", label="busy")
        await until_running(app, busy["runId"])
        await spawned_from_outside(app, stranger, "!say y")
        listed: Any = await call(app, boss, "subagents", action="list")
        assert listed["count"] == 2
        shown = [(child["label"], child["status"], child["runId"]) for child in listed["children"]]
        assert shown == [("done", "ok", done["runId"]), ("busy", "running", busy["runId"])]
        await call(app, boss, "subagents", action="cancel", target="all")
        await settle(app)


@requirement("spawn:8", "answers:2")
@pytest.mark.parametrize("action", ["cancel", "steer"])
async def test_a_strangers_child_and_none_at_all_get_one_answer(open_home: OpenHome, action: str) -> None:
    more: dict[str, Any] = {"message": "x"} if action == "steer" else {}
    async with open_home(settings()) as app:
        boss, stranger = await open_peer(app, "boss"), await open_peer(app, "stranger")
        theirs = await spawned_from_outside(app, stranger, "!sleep 1", label="theirs")
        told = [
            json.dumps(await call(app, boss, "subagents", action=action, target=name, **more)).replace(name, "NAME")
            for name in (theirs["childSessionKey"], theirs["runId"], "theirs", "nobody", key_of("boss"))
        ]
        assert len(set(told)) == 1 and '"not_found"' in told[0]
        assert not (await app.services.runs.get(OWNER, theirs["runId"])).is_cancel_requested
        await app.services.runs.cancel(OWNER, theirs["runId"])
        await settle(app)


@requirement("spawn:8")
async def test_a_child_at_work_reads_what_it_is_told_before_its_next_step(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        child = await spawned_from_outside(app, boss, wait_at("child", "one"), label="busy")
        await gates.until_reached("child")
        steered = await call(app, boss, "subagents", action="steer", target="busy", message="!say two")
        assert steered["runId"] == child["runId"]
        gates.open("child")
        assert (await wait_end(app, child["runId"])).reply == "two"
        ended = await call(app, boss, "subagents", action="steer", target="busy", message="!say three")
        assert ended["code"] == "child_ended"


@requirement("spawn:8", "runs:5")
async def test_a_cancelled_child_is_recorded_with_what_it_had_and_its_canceller_is_not_told_twice(
    open_home: OpenHome,
) -> None:
    runner = HeldRunner()
    async with open_home(settings(), Parts(runner=runner)) as app:
        boss = await open_peer(app, "boss")
        child = (await spawned_from_outside(app, boss, "work", label="busy"))["childSessionKey"]
        await runner.until_begun(1)
        answer = await call(app, boss, "subagents", action="cancel", target="busy")
        assert answer == {"status": "ok", "cancelled": [child]}
        await settle(app)
        (record,) = await records(app, key_of("boss"))
        assert "\nStatus: cancelled\n" in record.text and record.result == "partial"
        assert not record.has_run and await runs_of(app, key_of("boss")) == 0
        assert await call(app, boss, "subagents", action="cancel", target="busy") == {"status": "ok", "cancelled": []}


@requirement("spawn:7", "runs:5")
async def test_a_child_that_the_owner_cancelled_is_announced_as_that(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        await open_peer(app, "boss")
        first = await spawned(app, "boss", "!sleep 30")
        await app.services.runs.cancel(OWNER, first["runId"])
        await settle(app)
        (record,) = await records(app, key_of("boss"))
        assert "\nStatus: cancelled\n" in record.text and record.has_run


@requirement("spawn:8", "runs:5")
@pytest.mark.parametrize("yields", [False, True])
async def test_cancelling_a_session_reaches_its_whole_tree_and_frees_its_quota(
    open_home: OpenHome, yields: bool
) -> None:
    leaf = spawn_directive("!sleep 60")
    middle = f"{leaf}\n{leaf}\n{YIELD}" if yields else f"{leaf}\n{leaf}\n!sleep 60"
    async with open_home(settings(**{**CROWDED, "runs__max_concurrent": 100})) as app:
        boss = await open_peer(app, "boss")
        posted = await post(app, key_of("boss"), f"{spawn_directive(middle)}\n{spawn_directive(middle)}\n{YIELD}")
        expected = (4, 3) if yields else (6, 1)
        await until(app, lambda runs: (count_running(runs), sum(run.is_parked for run in runs)) == expected)
        cancelled = await app.services.runs.cancel_session(OWNER, NamedTarget(boss.key, None))
        assert cancelled.run_id == posted.run_id and cancelled.below == 6
        assert (await wait_end(app, posted.run_id)).status is RunStatus.CANCELLED
        await settle(app)
        found = await app.services.runs.list(OWNER, RunFilter(), limit=100)
        assert {run.status for run in found if run.code != "yielded"} == {RunStatus.CANCELLED}
        assert len(await records(app, key_of("boss"))) == 2
        assert await count_owed(app) == 0
        assert await runs_of(app, key_of("boss")) == 2


@requirement("spawn:8", "runs:5")
async def test_a_run_that_ends_well_before_it_learns_that_it_was_cancelled_takes_its_children_with_it(
    open_home: OpenHome, database_section: DatabaseSection
) -> None:
    gates = Gates()
    async with open_home(settings(**CROWDED), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        child = await spawned_from_outside(app, boss, f"{spawn_directive('!sleep 60')}\n{wait_at('end')}\n!say done")
        await until(app, lambda runs: any(run.id == child["runId"] and run.has_spawned for run in runs))
        await gates.until_reached("end")

        async def cancel_unnoticed(tx: Transaction) -> None:
            await ledger.change(tx, RunId(child["runId"]), {"cancel_requested": 1})

        await app.database.run(cancel_unnoticed)
        gates.open("end")
        await settle(app)
        (record,) = await records(app, key_of("boss"))
        # Where processes share the database each looks after its runs every second, and may learn it in time.
        assert record.result == "done" or database_section.url is not None
        assert await count_owed(app) == 0


@requirement("spawn:8", "runs:5")
async def test_a_cancelled_run_takes_its_children_with_it(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        await open_peer(app, "boss")
        posted = await post(app, key_of("boss"), f"{spawn_directive('!sleep 60')}\n!sleep 60")
        await until(app, lambda runs: count_running(runs) == 2)
        assert posted.run_id is not None
        await app.services.runs.cancel(OWNER, posted.run_id)
        await settle(app)
        assert await statuses(app, key_of("boss")) == [RunStatus.CANCELLED]
        (record,) = await records(app, key_of("boss"))
        assert "\nStatus: cancelled\n" in record.text and not record.has_run


def count_running(runs: list[Run]) -> int:
    return sum(run.status is RunStatus.RUNNING for run in runs)


# Two at once, where units overlap.


@pytest.fixture
def server(database_section: DatabaseSection) -> str:
    """The address of the database."""
    if database_section.url is None:
        pytest.skip("units of SQLite run one after the other")
    return database_section.url.get_secret_value()


@requirement("spawn:7")
@pytest.mark.usefixtures("server")
async def test_rows_that_name_a_session_are_written_while_another_unit_has_it(open_home: OpenHome) -> None:
    """Else a child's end, which names its requester, and the requester's deletion would wait for one another."""
    async with open_home(settings()) as app:
        boss = await open_peer(app, "boss")
        has_it, may_end = anyio.Event(), anyio.Event()

        async def hold(tx: Transaction) -> None:
            has_it.set()
            await may_end.wait()

        async def hold_boss() -> None:
            await app.database.run(hold, sessions=(SessionRow(boss.row),))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold_boss)
            await has_it.wait()
            with anyio.fail_after(SECONDS):
                await app.database.run(rows.add_participant, SessionRow(boss.row), "somebody")
            may_end.set()


@requirement("spawn:7", "spawn:8")
async def test_of_two_children_that_end_at_once_one_is_the_last(open_home: OpenHome, server: str) -> None:
    gates = Gates()
    async with open_home(settings(runs__max_concurrent=1), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        children = "\n".join(spawn_directive("!say never") for _ in range(2))
        posted = await post(app, key_of("boss"), f"{wait_at('slot')}\n{children}\n{YIELD}")
        await take_the_only_slot(app, posted.run_id)
        gates.open("slot")
        await until_parked(app, key_of("boss"))
        one, other = await list_queued_children(app)

        async def end(tx: Transaction, run: Run) -> None:
            await ledger.change(tx, run.id, {"cancel_requested": 1})
            assert await claim_elsewhere(tx, run) is None

        await overlap(
            app, server, one, end, lambda: app.database.run(end, other, sessions=(SessionRow(other.session),))
        )
        await free_the_slot(app)
        assert (await wait_end(app, posted.run_id)).status is RunStatus.OK
        assert [len(record.answers) for record in await records(app, key_of("boss"))] == [0, 2]


@requirement("runs:5", "spawn:8")
async def test_a_run_that_is_cancelled_while_it_yields_ends_cancelled(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(**NESTED), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        posted = await post(app, key_of("boss"), f"{spawn_directive('!sleep 60')}\n{wait_at('end')}")
        await gates.until_reached("end")
        run = await find_run(app, posted.run_id)

        async def end_cancelled_yield(tx: Transaction) -> None:
            await ledger.change(tx, run.id, {"is_yielding": 1, "cancel_requested": 1})
            finish = FinishRun(outcome=Outcome(status=RunStatus.OK, reply=""), at_ms=milliseconds(run.created_at))
            ended = await finish_run(tx, Fence(run.id, run.fence), finish)
            assert isinstance(ended, Ended)

        await app.database.run(end_cancelled_yield, sessions=(run.session,))
        ended = await find_run(app, posted.run_id)
        assert (ended.status, ended.code, ended.is_parked) == (RunStatus.CANCELLED, "cancelled", False)
        gates.open("end")
        await settle(app)


@requirement("spawn:7", "spawn:8", "sessions:7")
async def test_a_child_that_is_deleted_while_its_requester_begins_to_wait_is_gone_on_with(
    open_home: OpenHome, server: str
) -> None:
    gates = Gates()
    async with open_home(settings(**NESTED), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        waiting = f"{spawn_directive('!sleep 60')}\n{YIELD}"
        posted = await post(app, key_of("boss"), f"{spawn_directive(waiting)}\n{wait_at('end')}")
        await gates.until_reached("end")
        (child,) = await children_of(app, "boss")
        await until_parked(app, child)

        async def begin_to_wait(tx: Transaction, run: Run) -> None:
            await ledger.change(tx, run.id, {"is_yielding": 1})
            outcome = Outcome(status=RunStatus.OK, reply="waits")
            finish = FinishRun(outcome=outcome, at_ms=milliseconds(run.created_at))
            fence = Fence(run.id, run.fence)
            assert isinstance(await finish_run(tx, fence, finish), Ended)

        target = app.services.sessions.target(child)
        run = await find_run(app, posted.run_id)
        await overlap(app, server, run, begin_to_wait, lambda: app.services.sessions.delete(OWNER, target))
        gates.open("end")
        assert (await wait_end(app, posted.run_id)).status is RunStatus.OK
        (record,) = await records(app, key_of("boss"))
        assert "Status: error: The session was deleted." in record.text
        await call(app, boss, "subagents", action="cancel", target="all")
        await settle(app)


@requirement("spawn:8", "runs:5")
async def test_a_child_that_begins_while_it_is_cancelled_ends_once_and_leaves_its_session_idle(
    open_home: OpenHome, server: str
) -> None:
    async with open_home(settings(runs__max_concurrent=1)) as app:
        boss = await open_peer(app, "boss")
        await take_the_only_slot(app, None)
        await spawned_from_outside(app, boss, "!sleep 60")
        (child,) = await list_queued_children(app)
        await overlap(
            app, server, child, claim_elsewhere, lambda: call(app, boss, "subagents", action="cancel", target="all")
        )
        await free_the_slot(app)
        assert (await wait_end(app, child.id)).status is RunStatus.CANCELLED
        assert (await session_of(app, child.session_key)).status is SessionStatus.IDLE
        assert [event.type for event in await read_log(app, child.session_key)].count(EventType.RUN_FINISHED) == 1


async def overlap(
    app: App,
    server: str,
    run: Run,
    first: Callable[[Transaction, Run], Awaitable[object]],
    second: Callable[[], Awaitable[T]],
) -> T:
    """What the second answers, which begins while the first has not committed and waits for it."""
    is_done, may_commit = anyio.Event(), anyio.Event()
    answers: list[T] = []

    async def unit(tx: Transaction) -> None:
        await first(tx, run)
        await tx.fetch_one("SELECT 1")  # statements without an answer are sent with the next that has one
        is_done.set()
        await may_commit.wait()

    async def begin() -> None:
        await app.database.run(unit, sessions=(SessionRow(run.session),))

    async def follow() -> None:
        answers.append(await second())

    statement = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with anyio.fail_after(SECONDS):
        async with (
            await psycopg.AsyncConnection.connect(server, autocommit=True) as connection,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(begin)
            await is_done.wait()
            tasks.start_soon(follow)
            while await (await connection.execute(statement)).fetchone() is None:
                await anyio.lowlevel.checkpoint()
            may_commit.set()
    return answers[0]


async def claim_elsewhere(tx: Transaction, run: Run) -> Run | None:
    """As a worker would that dies then."""
    claimant = Claimant(process=ProcessId("elsewhere"), time_limits={run.agent_id: None})
    return await claim(tx, SessionRow(run.session), claimant, milliseconds(run.created_at))


async def take_the_only_slot(app: App, after: RunId | None) -> None:
    """A run of the main session has the slot until it is cancelled, at once or behind the other run."""
    if after is not None:
        await until_running(app, after)
    taking = await post(app, "main", "!sleep 60")
    if after is None and taking.run_id is not None:
        await until_running(app, taking.run_id)


async def free_the_slot(app: App) -> None:
    await app.services.runs.cancel_session(OWNER, NamedTarget((await find_session(app, "main")).key, None))


async def list_queued_children(app: App) -> list[Run]:
    queued = RunFilter(statuses=frozenset({RunStatus.QUEUED}))
    return [run for run in await app.services.runs.list(OWNER, queued, limit=100) if run.report is not None]
