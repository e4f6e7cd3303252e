"""Runs that wait for children and are continued: whose children, with which words, and what comes in between."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from antiphon.agents.fence import DataFences
from antiphon.agents.prompt import Framing, prompt_entries
from antiphon.agents.sub_agents import ANSWER, ANSWERS, GO_ON
from antiphon.app import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import RunId, SessionId
from antiphon.domain.message import UserMessage, text_of
from antiphon.domain.run import Outcome, QueueMode, RunStatus
from antiphon.domain.session import SessionType
from antiphon.domain.targets import NamedTarget
from antiphon.domain.transcript import Transcript
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from antiphon.store.runs import RunFilter
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.family import (
    NESTED,
    YIELD,
    children_of,
    count_owed,
    records,
    session_of,
    spawn_directive,
    spawned_from_outside,
    until,
    until_parked,
    until_running,
    write_script,
)
from tests.engine.gates import Gates, wait_at
from tests.engine.parley import call, key_of, open_peer, runs_of, settings, settle
from tests.engine.stage import ManualClock, ask, find_session, post, read_log, texts, wait_end
from tests.waiting import SECONDS

FENCES = DataFences(b"k" * 32, SessionId("api:x"))
pytestmark = pytest.mark.anyio


class Held:
    """A tool that returns when the test lets it."""

    def __init__(self) -> None:
        self.has_begun, self.may_return = anyio.Event(), anyio.Event()

    async def hold(self) -> str:
        """Waits."""
        self.has_begun.set()
        await self.may_return.wait()
        return "held"


def slow(words: str) -> str:
    """A task that says the words when the gate named like them is open."""
    return wait_at(words, words)


async def until_waiting_for(app: App, run_id: RunId) -> None:
    await until(app, lambda runs: any(run_id in run.waiting_for for run in runs))


async def reports_shown(app: App, name: str) -> list[str]:
    """What a prompt of the session holds of its children's results."""
    run = await ask(app, name, "!say what stands above")
    transcript = Transcript()
    transcript.add(await read_log(app, name))
    shown = prompt_entries(transcript.prompt_for(run.id), Framing(SessionType.DIRECT, FENCES))
    return [text_of(entry.content) for entry in shown if isinstance(entry, UserMessage) and entry.report]


@requirement("spawn:8")
async def test_each_of_two_runs_that_yielded_goes_on_with_its_own_children(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        one = await post(app, key_of("boss"), f"{spawn_directive(slow('one'))}\n{YIELD}")
        await until_parked(app, key_of("boss"))
        two = await post(app, key_of("boss"), f"{spawn_directive(slow('two'))}\n{YIELD}")
        gates.open("two")
        assert (await wait_end(app, two.run_id)).reply == "echo: two"
        gates.open("one")
        assert (await wait_end(app, one.run_id)).reply == "echo: one"
        await settle(app)
        assert await runs_of(app, key_of("boss")) == 4


@requirement("spawn:8")
async def test_there_is_nothing_to_yield_for_where_another_run_waits_for_all_children(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        boss = await open_peer(app, "boss")
        one = await post(app, key_of("boss"), f"{spawn_directive('!sleep 60')}\n{YIELD}")
        await until_parked(app, key_of("boss"))
        run = await ask(app, key_of("boss"), YIELD)
        assert json.loads(run.reply or "")["code"] == "nothing_to_wait_for" and not run.is_parked
        await call(app, boss, "subagents", action="cancel", target="all")
        assert (await wait_end(app, one.run_id)).status is RunStatus.OK


@requirement("spawn:8", "sessions:6")
async def test_a_yield_waits_for_no_child_of_an_earlier_incarnation(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        boss = await open_peer(app, "boss")
        await ask(app, key_of("boss"), f"{spawn_directive('!sleep 60')}\n!say spawned")
        await app.services.resets.reset(OWNER, NamedTarget(boss.key, None))
        run = await ask(app, key_of("boss"), YIELD)
        assert json.loads(run.reply or "")["code"] == "nothing_to_wait_for"
        posted = await post(app, key_of("boss"), f"{spawn_directive('!say new')}\n{YIELD}")
        assert (await wait_end(app, posted.run_id)).reply == "echo: new"
        await call(app, await find_session(app, key_of("boss")), "subagents", action="cancel", target="all")
        await settle(app)


@requirement("spawn:7", "sessions:1")
async def test_the_preview_of_a_session_that_waits_tells_what_its_child_said(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        await open_peer(app, "boss")
        spawning = [spawn_directive("!say at nine", label="hours"), spawn_directive("!sleep 60", label="music")]
        await post(app, key_of("boss"), "\n".join([*spawning, YIELD]))
        with anyio.fail_after(SECONDS):
            while (await find_session(app, key_of("boss"))).preview != "hours: at nine":
                await anyio.sleep(0.01)
        await call(app, await find_session(app, key_of("boss")), "subagents", action="cancel", target="all")
        await settle(app)


@requirement("spawn:8", "sessions:6")
@pytest.mark.parametrize("rest", ["!say I will tell you", YIELD], ids=["record", "yield"])
async def test_a_session_that_waits_for_children_does_not_begin_anew_by_itself(open_home: OpenHome, rest: str) -> None:
    clock, gates = ManualClock(), Gates()
    parts = Parts(clock=clock, tools=[gates.tool])
    async with open_home(settings(session__reset={"mode": "idle", "idle_minutes": 30}), parts) as app:
        boss = await open_peer(app, "boss")
        await post(app, key_of("boss"), f"{spawn_directive(slow('late'))}\n{rest}")
        await until(app, lambda runs: any(run.session_key == key_of("boss") and run.status.is_terminal for run in runs))
        clock.pass_time(timedelta(minutes=31))
        await ask(app, key_of("boss"), "is there something new?")
        assert (await find_session(app, key_of("boss"))).id == boss.id
        gates.open("late")
        await settle(app)
        assert texts(await read_log(app, key_of("boss")))[-1] == "echo: late"
        clock.pass_time(timedelta(minutes=31))
        await ask(app, key_of("boss"), "and now?")
        assert (await find_session(app, key_of("boss"))).id != boss.id


@requirement("spawn:8", "runs:3")
@pytest.mark.parametrize("words", [{}, {"message": "I will wait."}], ids=["silent", "with words"])
async def test_a_message_that_comes_while_a_run_yields_is_answered_before_it_waits(
    open_home: OpenHome, tmp_path: Path, words: dict[str, str]
) -> None:
    held, gates = Held(), Gates()
    yields = [{"name": "hold"}, {"name": "sessions_yield", "arguments": words}]
    first = [{"calls": [{"name": "sessions_spawn", "arguments": {"task": slow("slow")}}]}, {"calls": yields}]
    model = write_script(tmp_path, [*first, {"text": "It is noon."}], [{"text": "It came."}])
    async with open_home(settings(), Parts(tools=[held.hold, gates.tool])) as app:
        boss = await open_peer(app, "boss")
        await app.services.sessions.patch(OWNER, NamedTarget(boss.key, None), {"model": model})
        posted = await post(app, key_of("boss"), "go")
        await held.has_begun.wait()
        joined = await post(app, key_of("boss"), "What time is it?", mode=QueueMode.STEER)
        assert joined.run_id == posted.run_id
        held.may_return.set()
        await until_parked(app, key_of("boss"))
        gates.open("slow")
        assert (await wait_end(app, posted.run_id)).reply == "It came."
        said = texts(await read_log(app, key_of("boss")))
        assert said.index("It is noon.") < said.index("It came.") and "I will wait." not in said
        assert posted.run_id is not None
        assert (await app.services.runs.get(OWNER, posted.run_id)).reply == "It is noon."


@requirement("spawn:7")
async def test_a_child_whose_own_child_was_quicker_than_it_reports_once_and_with_it(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(**NESTED), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        task = f"{spawn_directive('!say quick')}\n{slow('too early')}"
        posted = await post(app, key_of("boss"), f"{spawn_directive(task)}\n{YIELD}")
        await until(app, lambda runs: any(run.report is not None and run.is_over for run in runs))
        gates.open("too early")
        assert (await wait_end(app, posted.run_id)).reply == "echo: echo: quick"
        await settle(app)
        (child,) = await children_of(app, "boss")
        assert len(await records(app, key_of("boss"))) == 1 and await runs_of(app, child) == 2


@requirement("spawn:7", "runs:6")
async def test_a_child_out_of_time_reports_once_and_begins_nothing_for_what_came_before(open_home: OpenHome) -> None:
    async with open_home(settings(**NESTED)) as app:
        await open_peer(app, "boss")
        task = f"{spawn_directive('!say quick')}\n!sleep 60"
        await ask(app, key_of("boss"), f"{spawn_directive(task, runTimeoutSeconds=5)}\n!say spawned")
        await settle(app)
        (record,) = await records(app, key_of("boss"))
        (child,) = await children_of(app, "boss")
        assert "Status: timeout" in record.text and record.has_run
        assert [found.result for found in await records(app, child)] == ["quick"]
        assert await runs_of(app, child) == 1


@requirement("spawn:7", "spawn:8")
@pytest.mark.parametrize("is_quicker", [False, True], ids=["child ends later", "child ends first"])
async def test_a_run_of_a_child_that_stays_reports_when_those_that_it_spawned_have_ended(
    open_home: OpenHome, is_quicker: bool
) -> None:
    gates = Gates()
    async with open_home(settings(**NESTED), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        child = await spawned_from_outside(app, boss, "!say one", mode="session")
        await settle(app)
        task, rest = ("!say grand", wait_at("late")) if is_quicker else (wait_at("late", "grand"), "")
        await post(app, child["childSessionKey"], f"{spawn_directive(task)}\n{rest}\n!say too early")
        if is_quicker:
            await gates.until_reached("late")
            await until(app, lambda runs: sum(run.report is not None and run.is_over for run in runs) == 2)
        else:
            await until_parked(app, child["childSessionKey"])
        gates.open("late")
        await settle(app)
        assert [record.result for record in await records(app, key_of("boss"))] == ["one", "echo: grand"]
        assert await count_owed(app) == 0


@requirement("spawn:8")
async def test_a_result_that_a_wait_takes_before_its_own_run_began_is_answered_once(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        held = await post(app, key_of("boss"), f"{spawn_directive(slow('kid'))}\n!say x")
        await wait_end(app, held.run_id)
        (child,) = await app.services.runs.list(
            OWNER, RunFilter(statuses=frozenset({RunStatus.QUEUED, RunStatus.RUNNING})), limit=10
        )
        wait = json.dumps({"runIds": [child.id]})
        taking = await post(app, key_of("boss"), f"{wait_at('taking')}\n!call sessions_wait {wait}\n!say taken")
        await gates.until_reached("taking")
        gates.open("kid")
        await wait_end(app, child.id)
        gates.open("taking")
        run = await wait_end(app, taking.run_id)
        await settle(app)
        assert run.reply == "taken" and len(await records(app, key_of("boss"))) == 1
        boss = await find_session(app, key_of("boss"))
        found = await app.services.runs.list(OWNER, RunFilter(session=boss.row), limit=10)
        assert sorted((str(run.status), run.code) for run in found if run.code is not None) == [("cancelled", "taken")]
        assert len(found) == 3


@requirement("spawn:8")
@pytest.mark.parametrize("is_collected", [False, True], ids=["alone", "with a person's words"])
async def test_a_run_that_answers_several_results_is_called_off_when_all_are_taken_and_nothing_joined_it(
    open_home: OpenHome, is_collected: bool
) -> None:
    held, gates = Held(), Gates()
    async with open_home(settings(), Parts(tools=[held.hold, gates.tool])) as app:
        await open_peer(app, "boss")
        children = f"{spawn_directive('!say one')}\n{spawn_directive('!say two')}"
        spawning = await post(app, key_of("boss"), f"{children}\n!call hold {{}}\n!say spawned")
        await held.has_begun.wait()
        await until(app, lambda runs: sum(run.report is not None and run.is_over for run in runs) == 2)
        found = [record.id for record in await records(app, key_of("boss"))]
        wait = f"!call sessions_wait {json.dumps({'runIds': found})}"
        taking = await post(app, key_of("boss"), f"{wait_at('taking')}\n{wait}\n!say taken")
        held.may_return.set()
        await wait_end(app, spawning.run_id)
        if is_collected:
            collected = await post(app, key_of("boss"), "and now?", mode=QueueMode.COLLECT)
            assert collected.run_id not in (spawning.run_id, taking.run_id)
        gates.open("taking")
        assert (await wait_end(app, taking.run_id)).reply == "taken"
        await settle(app)
        boss = await find_session(app, key_of("boss"))
        last, *_ = await app.services.runs.list(OWNER, RunFilter(session=boss.row), limit=10)
        assert (last.status, last.code) == ((RunStatus.OK, None) if is_collected else (RunStatus.CANCELLED, "taken"))
        assert await runs_of(app, key_of("boss")) == 3


@requirement("spawn:8")
async def test_two_waits_of_one_step_take_both_results(open_home: OpenHome, tmp_path: Path) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        spawning = [spawn_directive(slow(words)) for words in ("first", "second")]
        await ask(app, key_of("boss"), "\n".join([*spawning, "!say spawned"]))
        for words in ("first", "second"):
            await gates.until_reached(words)
        found = await app.services.runs.list(OWNER, RunFilter(statuses=frozenset({RunStatus.RUNNING})), limit=10)
        assert len(found) == 2
        calls = [{"name": "sessions_wait", "arguments": {"runIds": [run.id]}} for run in reversed(found)]
        model = write_script(tmp_path, [], [{"calls": calls}, {"text": "Both came."}])
        await app.services.sessions.patch(OWNER, NamedTarget(boss.key, None), {"model": model})
        posted = await post(app, key_of("boss"), "go")
        for run, words in zip(reversed(found), ("first", "second"), strict=True):
            await until_waiting_for(app, run.id)
            gates.open(words)
        assert (await wait_end(app, posted.run_id)).reply == "Both came."
        await settle(app)
        assert await runs_of(app, key_of("boss")) == 2


@requirement("spawn:8", "send:7")
async def test_a_wait_that_is_refused_at_its_end_waits_no_longer(open_home: OpenHome) -> None:
    held = Held()
    async with open_home(settings(), Parts(tools=[held.hold])) as app:
        boss = await open_peer(app, "boss")
        gone = await spawned_from_outside(app, boss, "!say gone")
        await settle(app)
        busy = await spawned_from_outside(app, boss, "!sleep 60")
        wait = json.dumps({"runIds": [gone["runId"], busy["runId"]], "timeoutSeconds": 4})
        posted = await post(app, key_of("boss"), f"!call sessions_wait {wait}\n!call hold {{}}\n!say done")
        await until(app, lambda runs: any(run.id == posted.run_id and run.waiting_for for run in runs))
        await app.services.sessions.delete(OWNER, app.services.sessions.target(gone["childSessionKey"]))
        await held.has_begun.wait()
        assert posted.run_id is not None
        assert not (await app.services.runs.get(OWNER, posted.run_id)).waiting_for
        held.may_return.set()
        await call(app, boss, "subagents", action="cancel", target="all")
        await settle(app)


@requirement("spawn:7", "sessions:7")
async def test_a_child_that_stays_reports_to_the_requester_of_its_deleted_one(open_home: OpenHome) -> None:
    async with open_home(settings(**NESTED)) as app:
        boss = await open_peer(app, "boss")
        inner = spawn_directive("!say one", mode="session")
        middle = await spawned_from_outside(app, boss, inner, mode="session")
        await settle(app)
        listed: Any = await call(app, await session_of(app, middle["childSessionKey"]), "subagents", action="list")
        (child,) = [each["sessionKey"] for each in listed["children"]]
        await app.services.sessions.delete(OWNER, app.services.sessions.target(middle["childSessionKey"]))
        await ask(app, child, "!say two")
        await settle(app)
        assert [record.result for record in await records(app, key_of("boss"))][-1] == "two"


@requirement("spawn:8", "runs:5")
async def test_cancelling_a_session_ends_a_continuation_that_waits_for_its_turn(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        posted = await post(app, key_of("boss"), f"{spawn_directive(wait_at('child'))}\n{YIELD}")
        await until_parked(app, key_of("boss"))
        blocker = await post(app, key_of("boss"), "!sleep 60")
        assert blocker.run_id is not None
        await until_running(app, blocker.run_id)
        gates.open("child")
        await until(app, lambda runs: any(run.continues == posted.run_id for run in runs))
        await app.services.runs.cancel_session(OWNER, NamedTarget(boss.key, None))
        assert (await wait_end(app, posted.run_id)).status is RunStatus.CANCELLED
        await settle(app)
        assert await runs_of(app, key_of("boss")) == 3


class Silent:
    """Ends its run without a last message, when the test lets it."""

    def __init__(self) -> None:
        self.held, self.seen = Held(), list[str]()

    async def run(self, context: RunContext) -> RunEnding:
        newest = (await context.read_log()).newest_input(context.run.id)
        assert newest is not None
        self.seen.append(text_of(newest.message.content))
        await self.held.hold()
        return RunEnding(outcome=Outcome(status=RunStatus.OK))


@requirement("runs:3")
async def test_a_run_that_ends_without_words_ends_behind_what_joined_it(open_home: OpenHome) -> None:
    runner = Silent()
    async with open_home(settings(), Parts(runner=runner)) as app:
        posted = await post(app, "main", "one")
        await runner.held.has_begun.wait()
        await post(app, "main", "two", mode=QueueMode.STEER)
        runner.held.may_return.set()
        await wait_end(app, posted.run_id)
        assert runner.seen == ["one", "two"]


# What a model is told.


@requirement("spawn:8")
@pytest.mark.parametrize(
    ("rest", "lead"),
    [(f"{wait_at('late')}\n{YIELD}", GO_ON), (YIELD, GO_ON), (slow("late"), ANSWERS), ("!say x", ANSWER)],
    ids=["yield, child first", "yield", "child first", "run first"],
)
async def test_a_continuation_goes_on_and_any_other_run_tells_what_came(
    open_home: OpenHome, rest: str, lead: str
) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        task = "!say one" if wait_at("late") in rest else wait_at("late", "one")
        posted = await post(app, key_of("boss"), f"{spawn_directive(task)}\n{rest}")
        await gates.until_reached("late")
        # Of the two runs, the one that is not at the gate.
        await until(app, lambda runs: any(run.status.is_terminal for run in runs))
        gates.open("late")
        await wait_end(app, posted.run_id)
        await settle(app)
        told = "\n".join(await reports_shown(app, key_of("boss")))
    assert [words for words in (GO_ON, ANSWER, ANSWERS) if words in told] == [lead]


@requirement("spawn:8", "runs:5")
@pytest.mark.parametrize("is_reset", [False, True])
async def test_a_wait_that_was_called_off_tells_nobody_to_go_on(open_home: OpenHome, is_reset: bool) -> None:
    async with open_home(settings()) as app:
        boss = await open_peer(app, "boss")
        children = "\n".join(spawn_directive("!sleep 60") for _ in range(2))
        posted = await post(app, key_of("boss"), f"{children}\n{YIELD}")
        await until_parked(app, key_of("boss"))
        assert posted.run_id is not None
        if is_reset:
            await app.services.resets.reset(OWNER, NamedTarget(boss.key, None))
        else:
            await app.services.runs.cancel(OWNER, posted.run_id)
        await settle(app)
        told = "\n".join(await reports_shown(app, key_of("boss")))
    assert "Status: cancelled" in told and GO_ON not in told
    assert is_reset or "this task does not continue. The run was cancelled." in told


# What is told of work that went through several runs.


@requirement("spawn:7")
async def test_work_without_a_last_reply_is_told_by_what_its_tools_brought_else_by_what_it_said(
    open_home: OpenHome, tmp_path: Path
) -> None:
    spawn = {"name": "sessions_spawn", "arguments": {"task": "!sleep 1"}}
    looking = [{"calls": [{"name": "look"}]}]
    work = [{"text": "I found 42.", "calls": [spawn]}, {"calls": [{"name": "sessions_yield"}]}]

    def look() -> str:
        """Looks."""
        return "what it saw"

    found: list[str] = []
    async with open_home(settings(**NESTED), Parts(tools=[look])) as app:
        for name, before in (("one", []), ("two", looking)):
            boss = await open_peer(app, name)
            model = write_script(tmp_path, [*before, *work], [{"text": ""}])
            await spawned_from_outside(app, boss, "go", model=model)
            await settle(app)
            (record,) = await records(app, key_of(name))
            found.append(record.result)
            assert "Notes: The sub-agent" in record.text
    assert found == ["I found 42.", "what it saw"]
