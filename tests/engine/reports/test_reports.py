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
from antiphon.building import App, Parts
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.actor import OWNER
from antiphon.domain.event import EventType
from antiphon.domain.ids import ProcessId, RunId, SessionId, SessionRow
from antiphon.domain.message import ExchangeStage, ToolResult, UserMessage, text_of
from antiphon.domain.run import Outcome, Run, RunStatus
from antiphon.domain.session import SessionStatus, SessionType
from antiphon.domain.transcript import Transcript
from antiphon.engine.ledger.fence import Claimant, Fence
from antiphon.engine.runs.ends import Ended, FinishRun
from antiphon.engine.runs.lifecycle import claim, finish_run
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.database import Transaction
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import YIELD, to_call, to_send, to_spawn, wait_at
from tests.engine.slots import skip_where_slots_stay
from tests.engine.stage import HeldRunner, texts
from tests.story import NESTED, Character, Story, telling
from tests.waiting import SECONDS

FENCES = DataFences(b"k" * 32, SessionId("api:x"))
pytestmark = pytest.mark.anyio

T = TypeVar("T")

MAIN = "agent:main:main"

CROWDED: dict[str, Any] = {
    **NESTED,
    "agents__defaults__subagents__max_children_per_agent": 30,
    "runs__max_concurrent": 4,
}


def look() -> str:
    """Looks."""
    return "what it saw"


class Delegating:
    """A tool that spawns a child and waits for it, as two calls of a model would."""

    def __init__(self) -> None:
        self.story: Story | None = None

    async def delegate(self, task: str, context: ToolContext, until_it_waits: bool = False) -> str:
        """Gives the task away and waits for its result."""
        assert self.story is not None
        tools = self.story.app.tools
        spawn, wait = tools.find("sessions_spawn"), tools.find("sessions_wait")
        assert spawn is not None and wait is not None
        answer = json.loads((await spawn.call(context, {"task": task})).text)
        if until_it_waits:
            await self.story.until(lambda runs: any(run.id == answer["runId"] and run.waiting_for for run in runs))
        return (await wait.call(context, {"runIds": [answer["runId"]]})).text


# The record, and what follows it.


@requirement("spawn:7")
async def test_results_that_come_while_their_requester_runs_start_one_run_when_it_ends(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        posted = await boss.hears(to_spawn("!say one"), to_spawn("!say two"), wait_at("end"), "!say spawned")
        await story.until(lambda runs: sum(run.report is not None and run.is_over for run in runs) == 2)
        story.opens_gate("end")
        run = await story.end_of(posted)
        await story.settles()
        found = await boss.records()
        assert sorted(record.result for record in found) == ["one", "two"]
        assert not any(record.has_run or record.answers for record in found)
        log = await boss.texts()
        assert log[-2].startswith("Results of sub-agents arrived") and log[-1].startswith("echo: ")
        assert sorted(log[-1].removeprefix("echo: ").split("\n")) == ["one", "two"]
        assert len(await boss.runs()) == 2 and run.reply == "spawned"


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
    async with telling(open_home, Parts(channels=[channel])) as story:
        boss = await story.opens("boss")
        await boss.speaks_at("the room", NAME)
        await boss.answers(to_spawn(task), "!say <NO_REPLY>")
        await story.settles()
        await channel.until_asked(len(told))
        assert channel.texts == told
        (record,) = await boss.records()
        assert record.result == "the result" and not record.has_run
        sent = await story.deliveries()
        assert [(delivery.session_key, delivery.place.to) for delivery in sent] == [
            (boss.key, "the room") for _ in told
        ]
        assert len(await boss.runs()) == 1


@requirement("spawn:7", "channels:1")
@pytest.mark.parametrize(
    ("task", "told"), [("!say the result", "the result"), ("!announce In other words.\n!say x", "In other words.")]
)
async def test_a_child_that_is_quicker_than_its_requester_announces_its_result_as_well(
    open_home: OpenHome, task: str, told: str
) -> None:
    channel = FakeChannel()
    async with telling(open_home, Parts(channels=[channel])) as story:
        boss = await story.opens("boss")
        await boss.speaks_at("the room", NAME)
        posted = await boss.hears(to_spawn(task), wait_at("end"), "!say <NO_REPLY>")
        await until_children_ended(story, boss)
        story.opens_gate("end")
        run = await story.end_of(posted)
        (record,) = await boss.records()
        quicker = await story.run(record.id)
        assert quicker.ended_at is not None and run.ended_at is not None and quicker.ended_at <= run.ended_at
        await story.settles()
        await channel.until_asked(1)
        assert channel.texts == [told]
        (child,) = await boss.children()
        assert record.text in await child.texts()


@requirement("spawn:7")
@pytest.mark.parametrize("is_quicker", [False, True], ids=["child ends later", "child ends first"])
async def test_where_the_announce_turn_fails_the_record_is_sent(open_home: OpenHome, is_quicker: bool) -> None:
    channel = FakeChannel()
    slow = wait_at("later")
    async with telling(open_home, Parts(channels=[channel])) as story:
        boss = await story.opens("boss")
        await boss.speaks_at("the room", NAME)
        task, rest = ("!say the result", slow) if is_quicker else (slow, "")
        posted = await boss.hears(to_spawn(task), rest, "!say <NO_REPLY>")
        if is_quicker:
            (child,) = await until_children_ended(story, boss)
        else:
            await story.end_of(posted)
            (child,) = await boss.children()
        await child.changes(model="no:m")
        story.opens_gate("later")
        await story.settles()
        await channel.until_asked(1)
        (record,) = await boss.records()
        assert channel.texts == [record.text]


@requirement("spawn:7")
async def test_the_message_goes_where_the_answers_went_when_the_child_was_spawned(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with telling(open_home, Parts(channels=[channel])) as story:
        boss = await story.opens("boss")
        await boss.speaks_at("before", NAME)
        await boss.answers(to_spawn(wait_at("child")), "!say <NO_REPLY>")
        await boss.speaks_at("after", NAME)
        story.opens_gate("child")
        await story.settles()
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
    async with telling(open_home, Parts(tools=[look])) as story:
        boss = await story.opens("boss")
        await boss.spawns(task)
        await story.settles()
        (record,) = await boss.records()
        assert f"\nStatus: {status}" in record.text
        assert record.result == result


@requirement("spawn:7", "sessions:6")
async def test_a_result_that_comes_after_a_reset_goes_to_the_old_incarnation_and_starts_nothing(
    open_home: OpenHome,
) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        await boss.spawns_in_a_run(wait_at("child", "late"))
        old = await story.resets(boss)
        story.opens_gate("child")
        await story.settles()
        (record,) = await boss.records()
        assert record.result == "late" and not record.has_run
        assert record.session_id == old
        assert len(await boss.runs()) == 1
        services = story.app.services
        of_old = await services.history.page(OWNER, services.sessions.target(old), limit=10)
        assert texts(of_old.events)[-1] == record.text


@requirement("spawn:7", "sessions:7")
async def test_a_deleted_requesters_results_go_to_its_own_requester_else_they_are_kept(open_home: OpenHome) -> None:
    task = wait_at("grandchild", "done")
    async with telling(open_home, **CROWDED) as story:
        boss = await story.opens("boss")
        middle = await boss.spawns_in_a_run(to_spawn(task), YIELD, mode="session")
        await middle.parks()
        await story.deletes(middle)
        (gone,) = await boss.records()
        assert "Status: error: The session was deleted." in gone.text
        assert [child["task"] for child in await boss.lists_children()] == [task.replace("\n", " ")]
        story.opens_gate("grandchild")
        await story.settles()
        assert [record.result for record in await boss.records()][1:] == ["done"]
        await boss.spawns(wait_at("child", "for nobody"))
        await story.deletes(boss)
        story.opens_gate("child")
        await story.settles()
        assert await story.kept() == ["for nobody"]


@requirement("spawn:7", "sessions:7")
async def test_what_was_recorded_is_answered_though_its_child_is_deleted_meanwhile(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        posted = await boss.hears(to_spawn("!say kept"), wait_at("end"), "!say spawned")
        (child,) = await until_children_ended(story, boss)
        await story.deletes(child)
        story.opens_gate("end")
        assert (await story.end_of(posted)).reply == "spawned"
        await story.settles()
        assert (await boss.texts())[-1] == "echo: kept"


@requirement("spawn:7", "sessions:7")
async def test_an_announcement_of_a_deleted_child_is_answered_by_its_requester(
    open_home: OpenHome, database_section: DatabaseSection
) -> None:
    skip_where_slots_stay(database_section)
    channel = FakeChannel()
    async with telling(open_home, Parts(channels=[channel]), runs__max_concurrent=1) as story:
        boss = await story.opens("boss")
        await boss.speaks_at("the room", NAME)
        await boss.answers(to_spawn(wait_at("child", "done")), "!say <NO_REPLY>")
        blocker = await story.session(MAIN).hears("!sleep 60")
        story.opens_gate("child")
        (child,) = await until_children_ended(story, boss)
        await story.until_running(blocker)
        await story.deletes(child)
        await story.cancels(blocker)
        await story.settles()
        await channel.until_asked(1)
        assert channel.texts == ["echo: done"]


@requirement("spawn:7", "runs:5")
async def test_a_cancelled_run_does_not_answer_what_came_before(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        posted = await boss.hears(to_spawn("!say early"), "!sleep 60")
        await until_children_ended(story, boss)
        await story.cancels(posted)
        await story.settles()
        assert [run.status for run in await boss.runs()] == [RunStatus.CANCELLED]
        assert [record.result for record in await boss.records()] == ["early"]


@requirement("spawn:7")
async def test_a_record_counts_what_all_runs_of_the_work_used(open_home: OpenHome) -> None:
    async with telling(open_home, **CROWDED) as story:
        boss = await story.opens("boss")
        child = await boss.spawns(to_spawn("!sleep 0.2"), YIELD)
        await story.settles()
        found = await child.runs()
        assert len(found) == 2 and all(run.usage.input_tokens for run in found)
        (record,) = await boss.records()
        assert f"tokens {sum(run.usage.input_tokens for run in found)} in" in record.text


@requirement("spawn:7", "spawn:8")
async def test_a_result_that_nobody_is_left_for_is_that_of_the_continuation(open_home: OpenHome) -> None:
    async with telling(open_home, **CROWDED) as story:
        boss = await story.opens("boss")
        child = await boss.spawns(to_spawn(wait_at("grandchild", "done")), YIELD)
        await child.parks()
        await story.deletes(boss)
        story.opens_gate("grandchild")
        await story.settles()
        assert await story.kept() == ["echo: done"]


async def until_children_ended(story: Story, requester: Character) -> list[Character]:
    """The session's children, once it has some and their first runs have ended."""

    async def first_runs() -> list[Run]:
        runs = [run for child in await requester.children() for run in await child.runs()]
        return [run for run in runs if run.report is not None]

    await story.sees(first_runs, lambda runs: runs and all(run.status.is_terminal for run in runs))
    return await requester.children()


# Waiting.


@requirement("spawn:8", "runs:1")
async def test_a_run_waits_for_its_children_without_a_slot_and_what_it_took_is_not_announced(
    open_home: OpenHome,
) -> None:
    tool = Delegating()
    async with telling(open_home, Parts(tools=[tool.delegate]), runs__max_concurrent=1) as story:
        tool.story = story
        boss = await story.opens("boss")
        (entry,) = (await boss.calls_in_a_run("delegate", task="!say slow"))["runs"]
        assert (entry["status"], entry["reply"]) == ("ok", "slow")
        await story.settles()
        assert [record.has_run for record in await boss.records()] == [False]
        assert len(await boss.runs()) == 1


@requirement("spawn:8")
@pytest.mark.parametrize("is_first", [True, False], ids=["record first", "wait first"])
async def test_a_prompt_tells_a_result_that_a_wait_brought_once(open_home: OpenHome, is_first: bool) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        child = await boss.spawns_in_a_run(wait_at("child", "fortytwo"))
        if is_first:
            story.opens_gate("child")
            await story.settles()
        posted = await boss.hears(to_call("sessions_wait", runIds=[child.run_id]))
        if not is_first:
            await story.until(lambda runs: any(run.waiting_for for run in runs))
            story.opens_gate("child")
        waiting = await story.end_of(posted)
        transcript = Transcript()
        transcript.add(await boss.log())
        shown = prompt_entries(transcript.prompt_for(waiting.id), Framing(SessionType.DIRECT, FENCES))
    (told,) = (text_of(entry.content) for entry in shown if isinstance(entry, UserMessage) and entry.report)
    (waited,) = (
        text_of(entry.content) for entry in shown if isinstance(entry, ToolResult) and entry.tool == "sessions_wait"
    )
    assert "fortytwo" in waited and "Status: ok" in told
    assert (told.count("fortytwo"), told.count(ABOVE)) == ((1, 0) if is_first else (0, 1))


@requirement("spawn:8")
async def test_one_of_several_is_enough_where_any_is_asked_for(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        slow = await boss.spawns("!sleep 30")
        await story.until_running(slow.run_id)
        quick = await boss.spawns("!say quick")
        answer = await boss.calls_in_a_run("sessions_wait", runIds=[slow.run_id, quick.run_id], mode="any")
        assert answer["status"] == "ok"
        assert [entry["status"] for entry in answer["runs"]] == ["running", "ok"]
        await boss.cancels_children()
        await story.settles()


@requirement("spawn:8")
async def test_a_wait_that_times_out_tells_what_there_is_and_the_rest_comes_by_itself(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        first = await boss.spawns_in_a_run(wait_at("child", "late"))
        await story.comes_to("child")
        answer = await boss.calls_in_a_run("sessions_wait", runIds=[first.run_id], timeoutSeconds=0.05)
        assert (answer["status"], answer["code"]) == ("timeout", "timeout")
        assert answer["runs"] == [{"runId": first.run_id, "status": "running"}]
        story.opens_gate("child")
        await story.settles()
        assert (await boss.texts())[-1] == "echo: late"


@requirement("spawn:8", "answers:2")
async def test_runs_of_others_and_runs_that_do_not_exist_get_one_answer(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss, stranger = await story.opens("boss"), await story.opens("stranger")
        theirs = await stranger.spawns("!say x")
        own = await boss.hears("hello")
        await story.settles()
        told: list[str] = []
        for run_id in (theirs.run_id, "run_" + "0" * 31, own):
            answer = await boss.calls("sessions_wait", runIds=[run_id])
            told.append(json.dumps(answer).replace(run_id, "RUN"))
        assert len(set(told)) == 1 and '"not_found"' in told[0]


@requirement("spawn:8", "send:7")
async def test_a_wait_that_would_never_end_is_refused_at_once(open_home: OpenHome) -> None:
    tool = Delegating()
    async with telling(open_home, Parts(tools=[tool.delegate])) as story:
        tool.story = story
        boss = await story.opens("boss")
        task = to_send("may I", sessionKey="parent", timeoutSeconds=60)
        assert (await boss.calls_in_a_run("delegate", task=task, until_it_waits=True))["code"] == "wait_cycle"
        await story.settles()
        (record,) = await boss.records()
        assert json.loads(record.result)["reply"] == "echo: may I"


@requirement("spawn:8")
async def test_a_wait_from_outside_is_answered_too_and_a_yield_from_outside_is_no_run(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        first = await boss.spawns("!sleep 0.1\n!say x")
        answer = await boss.calls("sessions_wait", runIds=[first.run_id])
        assert answer["runs"][0]["reply"] == "x"
        refused = await boss.calls("sessions_yield")
        assert (refused["status"], refused["code"]) == ("error", "no_run")


# Yielding and nesting.


@requirement("spawn:8")
async def test_a_yield_goes_on_once_with_all_results_and_whoever_waits_gets_its_result(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        spawning = [to_spawn(wait_at(name, name)) for name in "123"]
        posted = await boss.hears(*spawning, to_call("sessions_yield", message="wait"))
        await boss.parks()
        for count, name in enumerate("123", 1):
            story.opens_gate(name)
            await story.until(
                lambda runs, count=count: sum(run.report is not None and run.is_over for run in runs) == count
            )
        run = await story.end_of(posted)
        assert run.reply == "echo: 1\n2\n3"
        await story.settles()
        first = await story.run(run.id)
        assert (first.status, first.code, first.reply) == (RunStatus.OK, "yielded", "wait")
        assert first.continued_by is not None and not first.is_parked
        found = await boss.records()
        assert [record.has_run for record in found] == [False, False, True]
        assert len(await boss.runs()) == 2


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
    async with telling(open_home, Parts(tools=[tool.hesitate])) as story:
        tool.app = story.app
        boss = await story.opens("boss")
        task = "!sleep 30"
        child = await (boss.spawns(task) if is_from_outside else boss.spawns_in_a_run(task))
        before = len(await boss.runs())
        posted = await boss.hears("!call hesitate {}\n!say yields")
        await tool.has_yielded.wait()
        await story.cancels(child.run_id)
        await story.end_of(child.run_id)
        tool.may_return.set()
        run = await story.end_of(posted)
        assert run.reply == "echo: (no output)"
        assert len(await boss.runs()) == before + 2
        (record,) = await boss.records()
        assert not record.has_run


@requirement("spawn:8", "sessions:6")
async def test_a_parked_run_of_a_session_that_was_reset_is_not_continued(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        posted = await boss.hears(to_spawn(wait_at("child")), YIELD)
        await boss.parks()
        await story.resets(boss)
        story.opens_gate("child")
        run = await story.end_of(posted)
        assert run.status is RunStatus.CANCELLED


@requirement("spawn:8", "runs:6")
async def test_a_continuation_has_the_deadline_of_the_run_that_yielded(open_home: OpenHome) -> None:
    async with telling(open_home, limits__run__time_seconds=60) as story:
        boss = await story.opens("boss")
        posted = await boss.hears(to_spawn("!sleep 0.2"), YIELD)
        await story.end_of(posted)
        first = await story.run(posted)
        assert first.continued_by is not None and first.deadline is not None
        assert (await story.run(first.continued_by)).deadline == first.deadline


@requirement("spawn:8")
async def test_there_is_nothing_to_yield_for_without_children(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        answer = await story.session(MAIN).calls_in_a_run("sessions_yield")
        assert answer["code"] == "nothing_to_wait_for"


@requirement("spawn:8")
async def test_a_yield_does_not_go_on_with_what_a_wait_took(open_home: OpenHome) -> None:
    tool = Delegating()
    async with telling(open_home, Parts(tools=[tool.delegate])) as story:
        tool.story = story
        boss = await story.opens("boss")
        run = await boss.answers('!call delegate {"task": "!say taken"}', YIELD)
        assert json.loads(run.reply or "")["code"] == "nothing_to_wait_for"
        await story.settles()
        assert len(await boss.runs()) == 1


@requirement("spawn:8")
async def test_what_a_run_owes_follows_its_continuation(open_home: OpenHome) -> None:
    """A session asked by another spawns, yields, and answers the other with what came of it."""
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        await story.opens("expert")
        answer = await boss.sends_in_a_run(to_spawn("!sleep 0.2"), YIELD, label="expert")
        assert (answer["status"], answer["reply"]) == ("ok", "echo: done")


@requirement("spawn:8", "send:5")
async def test_a_request_that_is_not_waited_for_is_answered_by_the_continuation(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        await story.opens("expert")
        await boss.sends_in_a_run(to_spawn("!sleep 0.2"), YIELD, label="expert", timeoutSeconds=0)
        await story.settles()
        assert await boss.exchanged() == [(ExchangeStage.TURN, 1, "echo: done")]


@requirement("spawn:8", "runs:6")
async def test_a_yielded_run_out_of_time_takes_its_children_with_it(open_home: OpenHome) -> None:
    async with telling(open_home, limits__run__time_seconds=4) as story:
        boss = await story.opens("boss")
        posted = await boss.hears(to_spawn("!sleep 30", runTimeoutSeconds=0), YIELD)
        run = await story.end_of(posted)
        assert run.status is RunStatus.TIMEOUT
        await story.settles()
        (record,) = await boss.records()
        assert "Status: timeout" in record.text or "Status: cancelled" in record.text


@requirement("spawn:7")
async def test_a_child_reports_once_when_those_that_it_spawned_have_ended(open_home: OpenHome) -> None:
    async with telling(open_home, **CROWDED) as story:
        boss = await story.opens("boss")
        task = to_spawn("!sleep 1.2", label="a"), to_spawn("!sleep 1", label="b"), "!say too early"
        posted = await boss.hears(to_spawn(*task), YIELD)
        run = await story.end_of(posted)
        assert run.reply == "echo: echo: done\ndone"
        await story.settles()
        (record,) = await boss.records()
        (child,) = await boss.children()
        assert record.result == "echo: done\ndone"
        assert len(await child.records()) == 2 and len(await child.runs()) == 2


@requirement("spawn:7")
async def test_each_run_of_a_child_that_stays_reports(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        first = await boss.spawns("!say one", mode="session", label="helper")
        await story.settles()
        await first.answers("!say two")
        steered = await boss.steers("helper", "!say three")
        assert steered["status"] == "accepted" and steered["runId"] != first.run_id
        await story.settles()
        assert [record.result for record in await boss.records()] == ["one", "two", "three"]


# Governing.


@requirement("spawn:8")
async def test_children_are_listed_with_what_became_of_them(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss, stranger = await story.opens("boss"), await story.opens("stranger")
        done = await boss.spawns("!say x", label="done")
        await story.end_of(done.run_id)
        busy = await boss.spawns("!sleep 30", label="busy")
        await story.until_running(busy.run_id)
        await stranger.spawns("!say y")
        shown = [(child["label"], child["status"], child["runId"]) for child in await boss.lists_children()]
        assert shown == [("done", "ok", done.run_id), ("busy", "running", busy.run_id)]
        await boss.cancels_children()
        await story.settles()


@requirement("spawn:8", "answers:2")
@pytest.mark.parametrize("action", ["cancel", "steer"])
async def test_a_strangers_child_and_none_at_all_get_one_answer(open_home: OpenHome, action: str) -> None:
    more: dict[str, Any] = {"message": "x"} if action == "steer" else {}
    async with telling(open_home) as story:
        boss, stranger = await story.opens("boss"), await story.opens("stranger")
        theirs = await stranger.spawns("!sleep 1", label="theirs")
        told = [
            json.dumps(await boss.calls("subagents", action=action, target=name, **more)).replace(name, "NAME")
            for name in (theirs.key, theirs.run_id, "theirs", "nobody", boss.key)
        ]
        assert len(set(told)) == 1 and '"not_found"' in told[0]
        assert not (await story.run(theirs.run_id)).is_cancel_requested
        await story.cancels(theirs.run_id)
        await story.settles()


@requirement("spawn:8")
async def test_a_child_at_work_reads_what_it_is_told_before_its_next_step(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        child = await boss.spawns(wait_at("child", "one"), label="busy")
        await story.comes_to("child")
        steered = await boss.steers("busy", "!say two")
        assert steered["runId"] == child.run_id
        story.opens_gate("child")
        assert (await story.end_of(child.run_id)).reply == "two"
        ended = await boss.steers("busy", "!say three")
        assert ended["code"] == "child_ended"


@requirement("spawn:8", "runs:5")
async def test_a_cancelled_child_is_recorded_with_what_it_had_and_its_canceller_is_not_told_twice(
    open_home: OpenHome,
) -> None:
    runner = HeldRunner()
    async with telling(open_home, Parts(runner=runner)) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("work", label="busy")
        await runner.until_begun(1)
        assert await boss.cancels_children("busy") == {"status": "ok", "cancelled": [child.key]}
        await story.settles()
        (record,) = await boss.records()
        assert "\nStatus: cancelled\n" in record.text and record.result == "partial"
        assert not record.has_run and await boss.runs() == []
        assert await boss.cancels_children("busy") == {"status": "ok", "cancelled": []}


@requirement("spawn:7", "runs:5")
async def test_a_child_that_the_owner_cancelled_is_announced_as_that(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        first = await boss.spawns_in_a_run("!sleep 30")
        await story.cancels(first.run_id)
        await story.settles()
        (record,) = await boss.records()
        assert "\nStatus: cancelled\n" in record.text and record.has_run


@requirement("spawn:8", "runs:5")
@pytest.mark.parametrize("yields", [False, True])
async def test_cancelling_a_session_reaches_its_whole_tree_and_frees_its_quota(
    open_home: OpenHome, yields: bool
) -> None:
    leaf = to_spawn("!sleep 60")
    middle = f"{leaf}\n{leaf}\n{YIELD}" if yields else f"{leaf}\n{leaf}\n!sleep 60"
    settings: dict[str, Any] = {**CROWDED, "runs__max_concurrent": 100}
    async with telling(open_home, **settings) as story:
        boss = await story.opens("boss")
        posted = await boss.hears(to_spawn(middle), to_spawn(middle), YIELD)
        expected = (4, 3) if yields else (6, 1)
        await story.until(lambda runs: (count_running(runs), sum(run.is_parked for run in runs)) == expected)
        cancelled = await story.cancels_work_of(boss)
        assert cancelled.run_id == posted and cancelled.below == 6
        assert (await story.end_of(posted)).status is RunStatus.CANCELLED
        await story.settles()
        found = await story.runs()
        assert {run.status for run in found if run.code != "yielded"} == {RunStatus.CANCELLED}
        assert len(await boss.records()) == 2
        assert await story.owed() == 0
        assert len(await boss.runs()) == 2


@requirement("spawn:8", "runs:5")
async def test_a_run_that_ends_well_before_it_learns_that_it_was_cancelled_takes_its_children_with_it(
    open_home: OpenHome, database_section: DatabaseSection
) -> None:
    async with telling(open_home, **CROWDED) as story:
        boss = await story.opens("boss")
        child = await boss.spawns(to_spawn("!sleep 60"), wait_at("end"), "!say done")
        await story.until(lambda runs: any(run.id == child.run_id and run.has_spawned for run in runs))
        await story.comes_to("end")

        async def cancel_unnoticed(tx: Transaction) -> None:
            await ledger.change(tx, child.run_id, {"cancel_requested": 1})

        await story.app.database.run(cancel_unnoticed)
        story.opens_gate("end")
        await story.settles()
        (record,) = await boss.records()
        # Where processes share the database each looks after its runs every second, and may learn it in time.
        assert record.result == "done" or database_section.url is not None
        assert await story.owed() == 0


@requirement("spawn:8", "runs:5")
async def test_a_cancelled_run_takes_its_children_with_it(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        posted = await boss.hears(to_spawn("!sleep 60"), "!sleep 60")
        await story.until(lambda runs: count_running(runs) == 2)
        await story.cancels(posted)
        await story.settles()
        assert [run.status for run in await boss.runs()] == [RunStatus.CANCELLED]
        (record,) = await boss.records()
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
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        row = (await boss.session()).row
        has_it, may_end = anyio.Event(), anyio.Event()

        async def hold(tx: Transaction) -> None:
            has_it.set()
            await may_end.wait()

        async def hold_boss() -> None:
            await story.app.database.run(hold, sessions=(row,))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold_boss)
            await has_it.wait()
            with anyio.fail_after(SECONDS):
                await story.app.database.run(rows.add_participant, row, "somebody")
            may_end.set()


@requirement("spawn:7", "spawn:8")
async def test_of_two_children_that_end_at_once_one_is_the_last(open_home: OpenHome, server: str) -> None:
    async with telling(open_home, runs__max_concurrent=1) as story:
        boss = await story.opens("boss")
        posted = await boss.hears(wait_at("slot"), to_spawn("!say never"), to_spawn("!say never"), YIELD)
        await take_the_only_slot(story, posted)
        story.opens_gate("slot")
        await boss.parks()
        one, other = await list_queued_children(story)

        async def end(tx: Transaction, run: Run) -> None:
            await ledger.change(tx, run.id, {"cancel_requested": 1})
            assert await claim_elsewhere(tx, run) is None

        await overlap(
            story.app,
            server,
            one,
            end,
            lambda: story.app.database.run(end, other, sessions=(SessionRow(other.session),)),
        )
        await story.cancels_work_of(story.session(MAIN))
        assert (await story.end_of(posted)).status is RunStatus.OK
        assert [len(record.answers) for record in await boss.records()] == [0, 2]


@requirement("runs:5", "spawn:8")
async def test_a_run_that_is_cancelled_while_it_yields_ends_cancelled(open_home: OpenHome) -> None:
    async with telling(open_home, **NESTED) as story:
        boss = await story.opens("boss")
        posted = await boss.hears(to_spawn("!sleep 60"), wait_at("end"))
        await story.comes_to("end")
        run = await story.run(posted)

        async def end_cancelled_yield(tx: Transaction) -> None:
            await ledger.change(tx, run.id, {"is_yielding": 1, "cancel_requested": 1})
            finish = FinishRun(outcome=Outcome(status=RunStatus.OK, reply=""))
            ended = await finish_run(tx, Fence(run.id, run.fence), finish)
            assert isinstance(ended, Ended)

        await story.app.database.run(end_cancelled_yield, sessions=(run.session,))
        ended = await story.run(posted)
        assert (ended.status, ended.code, ended.is_parked) == (RunStatus.CANCELLED, "cancelled", False)
        story.opens_gate("end")
        await story.settles()


@requirement("spawn:7", "spawn:8", "sessions:7")
async def test_a_child_that_is_deleted_while_its_requester_begins_to_wait_is_gone_on_with(
    open_home: OpenHome, server: str
) -> None:
    async with telling(open_home, **NESTED) as story:
        boss = await story.opens("boss")
        posted = await boss.hears(to_spawn(to_spawn("!sleep 60"), YIELD), wait_at("end"))
        await story.comes_to("end")
        (child,) = await boss.children()
        await child.parks()

        async def begin_to_wait(tx: Transaction, run: Run) -> None:
            await ledger.change(tx, run.id, {"is_yielding": 1})
            outcome = Outcome(status=RunStatus.OK, reply="waits")
            finish = FinishRun(outcome=outcome)
            fence = Fence(run.id, run.fence)
            assert isinstance(await finish_run(tx, fence, finish), Ended)

        run = await story.run(posted)
        await overlap(story.app, server, run, begin_to_wait, lambda: story.deletes(child))
        story.opens_gate("end")
        assert (await story.end_of(posted)).status is RunStatus.OK
        (record,) = await boss.records()
        assert "Status: error: The session was deleted." in record.text
        await boss.cancels_children()
        await story.settles()


@requirement("spawn:8", "runs:5")
async def test_a_child_that_begins_while_it_is_cancelled_ends_once_and_leaves_its_session_idle(
    open_home: OpenHome, server: str
) -> None:
    async with telling(open_home, runs__max_concurrent=1) as story:
        boss = await story.opens("boss")
        await take_the_only_slot(story, None)
        child = await boss.spawns("!sleep 60")
        (run,) = await list_queued_children(story)
        await overlap(story.app, server, run, claim_elsewhere, boss.cancels_children)
        await story.cancels_work_of(story.session(MAIN))
        assert (await story.end_of(child.run_id)).status is RunStatus.CANCELLED
        assert (await child.session()).status is SessionStatus.IDLE
        assert [event.type for event in await child.log()].count(EventType.RUN_FINISHED) == 1


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
    return await claim(tx, SessionRow(run.session), claimant)


async def take_the_only_slot(story: Story, after: RunId | None) -> None:
    """A run of the main session has the slot until it is cancelled, at once or behind the other run."""
    if after is not None:
        await story.until_running(after)
    taking = await story.session(MAIN).hears("!sleep 60")
    if after is None:
        await story.until_running(taking)


async def list_queued_children(story: Story) -> list[Run]:
    return [run for run in await story.runs() if run.status is RunStatus.QUEUED and run.report is not None]
