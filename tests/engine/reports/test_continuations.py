"""Runs that wait for children and are continued: whose children, with which words, and what comes in between."""

import json
from datetime import timedelta

import pytest

from antiphon.agents.fence import DataFences
from antiphon.agents.prompt import Framing, prompt_entries
from antiphon.agents.sub_agents import ANSWER, ANSWERS, GO_ON
from antiphon.building import Parts
from antiphon.domain.ids import SessionId
from antiphon.domain.message import UserMessage, text_of
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import Outcome, RunStatus
from antiphon.domain.session import SessionType
from antiphon.domain.transcript import Transcript
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import YIELD, to_call, to_spawn, wait_at
from tests.engine.gates import Gates
from tests.engine.stage import ManualClock
from tests.story import NESTED, Character, telling

FENCES = DataFences(b"k" * 32, SessionId("api:x"))
pytestmark = pytest.mark.anyio


def slow(words: str) -> str:
    """A task that says the words when the gate named like them is open."""
    return wait_at(words, words)


async def reports_shown(character: Character) -> list[str]:
    """What a prompt of the session holds of its children's results."""
    run = await character.answers("!say what stands above")
    transcript = Transcript()
    transcript.add(await character.log())
    shown = prompt_entries(transcript.prompt_for(run.id), Framing(SessionType.DIRECT, FENCES))
    return [text_of(entry.content) for entry in shown if isinstance(entry, UserMessage) and entry.report]


@requirement("spawn:8")
async def test_each_of_two_runs_that_yielded_goes_on_with_its_own_children(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        one = await boss.hears(to_spawn(slow("one")), YIELD)
        await boss.parks()
        two = await boss.hears(to_spawn(slow("two")), YIELD)
        story.opens_gate("two")
        assert (await story.end_of(two)).reply == "echo: two"
        story.opens_gate("one")
        assert (await story.end_of(one)).reply == "echo: one"
        await story.settles()
        assert len(await boss.runs()) == 4


@requirement("spawn:8")
async def test_there_is_nothing_to_yield_for_where_another_run_waits_for_all_children(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        one = await boss.hears(to_spawn("!sleep 60"), YIELD)
        await boss.parks()
        run = await boss.answers(YIELD)
        assert json.loads(run.reply or "")["code"] == "nothing_to_wait_for" and not run.is_parked
        await boss.cancels_children()
        assert (await story.end_of(one)).status is RunStatus.OK


@requirement("spawn:8", "sessions:6")
async def test_a_yield_waits_for_no_child_of_an_earlier_incarnation(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        await boss.answers(to_spawn("!sleep 60"), "!say spawned")
        await story.resets(boss)
        assert (await boss.calls_in_a_run("sessions_yield"))["code"] == "nothing_to_wait_for"
        posted = await boss.hears(to_spawn("!say new"), YIELD)
        assert (await story.end_of(posted)).reply == "echo: new"
        await boss.cancels_children()
        await story.settles()


@requirement("spawn:7", "sessions:1")
async def test_the_preview_of_a_session_that_waits_tells_what_its_child_said(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        spawning = [to_spawn("!say at nine", label="hours"), to_spawn("!sleep 60", label="music")]
        await boss.hears(*spawning, YIELD)
        await boss.parks()
        await story.sees(boss.session, lambda session: session.preview == "hours: at nine")
        await boss.cancels_children()
        await story.settles()


@requirement("spawn:8", "sessions:6")
@pytest.mark.parametrize("rest", ["!say I will tell you", YIELD], ids=["record", "yield"])
async def test_a_session_that_waits_for_children_does_not_begin_anew_by_itself(open_home: OpenHome, rest: str) -> None:
    clock = ManualClock()
    reset = {"mode": "idle", "idle_minutes": 30}
    async with telling(open_home, Parts(clock=clock), session__reset=reset, limits__run__time_seconds=0) as story:
        boss = await story.opens("boss")
        first = (await boss.session()).id
        await boss.hears(to_spawn(slow("late")), rest)
        await story.until(lambda runs: any(run.session_key == boss.key and run.status.is_terminal for run in runs))
        clock.pass_time(timedelta(minutes=31))
        await boss.answers("is there something new?")
        assert (await boss.session()).id == first
        story.opens_gate("late")
        await story.settles()
        assert (await boss.texts())[-1] == "echo: late"
        clock.pass_time(timedelta(minutes=31))
        await boss.answers("and now?")
        assert (await boss.session()).id != first


@requirement("spawn:8", "runs:3")
@pytest.mark.parametrize("words", [{}, {"message": "I will wait."}], ids=["silent", "with words"])
async def test_a_message_that_comes_while_a_run_yields_is_answered_before_it_waits(
    open_home: OpenHome, words: dict[str, str]
) -> None:
    yields = [{"name": "gate", "arguments": {"name": "held"}}, {"name": "sessions_yield", "arguments": words}]
    first = [{"calls": [{"name": "sessions_spawn", "arguments": {"task": slow("slow")}}]}, {"calls": yields}]
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        await boss.changes(model=story.script([*first, {"text": "It is noon."}], [{"text": "It came."}]))
        posted = await boss.hears("go")
        await story.comes_to("held")
        joined = await boss.hears("What time is it?", mode=QueueMode.STEER)
        assert joined == posted
        story.opens_gate("held")
        await boss.parks()
        story.opens_gate("slow")
        assert (await story.end_of(posted)).reply == "It came."
        said = await boss.texts()
        assert said.index("It is noon.") < said.index("It came.") and "I will wait." not in said
        assert (await story.run(posted)).reply == "It is noon."


@requirement("spawn:7")
async def test_a_child_whose_own_child_was_quicker_than_it_reports_once_and_with_it(open_home: OpenHome) -> None:
    async with telling(open_home, **NESTED) as story:
        boss = await story.opens("boss")
        posted = await boss.hears(to_spawn(to_spawn("!say quick"), slow("too early")), YIELD)
        await story.until(lambda runs: any(run.report is not None and run.is_over for run in runs))
        story.opens_gate("too early")
        assert (await story.end_of(posted)).reply == "echo: echo: quick"
        await story.settles()
        (child,) = await boss.children()
        assert len(await boss.records()) == 1 and len(await child.runs()) == 2


@requirement("spawn:7", "runs:6")
async def test_a_child_out_of_time_reports_once_and_begins_nothing_for_what_came_before(open_home: OpenHome) -> None:
    async with telling(open_home, **NESTED) as story:
        boss = await story.opens("boss")
        await boss.answers(to_spawn(to_spawn("!say quick"), "!sleep 60", runTimeoutSeconds=5), "!say spawned")
        await story.settles()
        (record,) = await boss.records()
        (child,) = await boss.children()
        assert "Status: timeout" in record.text and record.has_run
        assert [found.result for found in await child.records()] == ["quick"]
        assert len(await child.runs()) == 1


@requirement("spawn:7", "spawn:8")
@pytest.mark.parametrize("is_quicker", [False, True], ids=["child ends later", "child ends first"])
async def test_a_run_of_a_child_that_stays_reports_when_those_that_it_spawned_have_ended(
    open_home: OpenHome, is_quicker: bool
) -> None:
    async with telling(open_home, **NESTED) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("!say one", mode="session")
        await story.settles()
        task, rest = ("!say grand", wait_at("late")) if is_quicker else (wait_at("late", "grand"), "")
        await child.hears(to_spawn(task), rest, "!say too early")
        if is_quicker:
            await story.comes_to("late")
            await story.until(lambda runs: sum(run.report is not None and run.is_over for run in runs) == 2)
        else:
            await child.parks()
        story.opens_gate("late")
        await story.settles()
        assert [record.result for record in await boss.records()] == ["one", "echo: grand"]
        assert await story.owed() == 0


@requirement("spawn:8")
async def test_a_result_that_a_wait_takes_before_its_own_run_began_is_answered_once(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        held = await boss.hears(to_spawn(slow("kid")), "!say x")
        await story.end_of(held)
        (child,) = [run for run in await story.runs() if not run.status.is_terminal]
        taking = await boss.hears(wait_at("taking"), to_call("sessions_wait", runIds=[child.id]), "!say taken")
        await story.comes_to("taking")
        story.opens_gate("kid")
        await story.end_of(child.id)
        story.opens_gate("taking")
        run = await story.end_of(taking)
        await story.settles()
        assert run.reply == "taken" and len(await boss.records()) == 1
        found = await boss.runs()
        assert sorted((str(run.status), run.code) for run in found if run.code is not None) == [("cancelled", "taken")]
        assert len(found) == 3


@requirement("spawn:8")
@pytest.mark.parametrize("is_collected", [False, True], ids=["alone", "with a person's words"])
async def test_a_run_that_answers_several_results_is_called_off_when_all_are_taken_and_nothing_joined_it(
    open_home: OpenHome, is_collected: bool
) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        spawning = await boss.hears(to_spawn("!say one"), to_spawn("!say two"), wait_at("held"), "!say spawned")
        await story.comes_to("held")
        await story.until(lambda runs: sum(run.report is not None and run.is_over for run in runs) == 2)
        found = [record.id for record in await boss.records()]
        taking = await boss.hears(wait_at("taking"), to_call("sessions_wait", runIds=found), "!say taken")
        story.opens_gate("held")
        await story.end_of(spawning)
        if is_collected:
            collected = await boss.hears("and now?", mode=QueueMode.COLLECT)
            assert collected not in (spawning, taking)
        story.opens_gate("taking")
        assert (await story.end_of(taking)).reply == "taken"
        await story.settles()
        last, *_ = await boss.runs()
        assert (last.status, last.code) == ((RunStatus.OK, None) if is_collected else (RunStatus.CANCELLED, "taken"))
        assert len(await boss.runs()) == 3


@requirement("spawn:8")
async def test_two_waits_of_one_step_take_both_results(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        spawning = [to_spawn(slow(words)) for words in ("first", "second")]
        await boss.answers(*spawning, "!say spawned")
        for words in ("first", "second"):
            await story.comes_to(words)
        found = [run for run in await story.runs() if run.status is RunStatus.RUNNING]
        assert len(found) == 2
        calls = [{"name": "sessions_wait", "arguments": {"runIds": [run.id]}} for run in reversed(found)]
        model = story.script([], [{"calls": calls}, {"text": "Both came."}])
        await boss.changes(model=model)
        posted = await boss.hears("go")
        for run, words in zip(reversed(found), ("first", "second"), strict=True):
            await story.until(lambda runs, child=run.id: any(child in each.waiting_for for each in runs))
            story.opens_gate(words)
        assert (await story.end_of(posted)).reply == "Both came."
        await story.settles()
        assert len(await boss.runs()) == 2


@requirement("spawn:8", "send:7")
async def test_a_wait_that_is_refused_at_its_end_waits_no_longer(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        gone = await boss.spawns("!say gone")
        await story.settles()
        busy = await boss.spawns("!sleep 60")
        wait = to_call("sessions_wait", runIds=[gone.run_id, busy.run_id], timeoutSeconds=4)
        posted = await boss.hears(wait, wait_at("held"), "!say done")
        await story.until(lambda runs: any(run.id == posted and run.waiting_for for run in runs))
        await story.deletes(gone)
        await story.comes_to("held")
        assert not (await story.run(posted)).waiting_for
        story.opens_gate("held")
        await boss.cancels_children()
        await story.settles()


@requirement("spawn:7", "sessions:7")
async def test_a_child_that_stays_reports_to_the_requester_of_its_deleted_one(open_home: OpenHome) -> None:
    async with telling(open_home, **NESTED) as story:
        boss = await story.opens("boss")
        middle = await boss.spawns(to_spawn("!say one", mode="session"), mode="session")
        await story.settles()
        (child,) = await middle.children()
        await story.deletes(middle)
        await child.answers("!say two")
        await story.settles()
        assert [record.result for record in await boss.records()][-1] == "two"


@requirement("spawn:8", "runs:5")
async def test_cancelling_a_session_ends_a_continuation_that_waits_for_its_turn(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        posted = await boss.hears(to_spawn(wait_at("child")), YIELD)
        await boss.parks()
        blocker = await boss.hears("!sleep 60")
        await story.until_running(blocker)
        story.opens_gate("child")
        await story.until(lambda runs: any(run.continues == posted for run in runs))
        await story.cancels_work_of(boss)
        assert (await story.end_of(posted)).status is RunStatus.CANCELLED
        await story.settles()
        assert len(await boss.runs()) == 3


class Silent:
    """Ends its run without a last message, when the test lets it."""

    def __init__(self) -> None:
        self.gates, self.seen = Gates(), list[str]()

    async def run(self, context: RunContext) -> RunEnding:
        newest = (await context.read_log()).newest_input(context.run.id)
        assert newest is not None
        self.seen.append(text_of(newest.message.content))
        await self.gates.gate("end")
        return RunEnding(outcome=Outcome(status=RunStatus.OK))


@requirement("runs:3")
async def test_a_run_that_ends_without_words_ends_behind_what_joined_it(open_home: OpenHome) -> None:
    runner = Silent()
    async with telling(open_home, Parts(runner=runner), gates=runner.gates) as story:
        boss = await story.opens("boss")
        posted = await boss.hears("one")
        await story.comes_to("end")
        await boss.hears("two", mode=QueueMode.STEER)
        story.opens_gate("end")
        await story.end_of(posted)
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
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        task = "!say one" if wait_at("late") in rest else wait_at("late", "one")
        posted = await boss.hears(to_spawn(task), rest)
        await story.comes_to("late")
        # Of the two runs, the one that is not at the gate.
        await story.until(lambda runs: any(run.status.is_terminal for run in runs))
        story.opens_gate("late")
        await story.end_of(posted)
        await story.settles()
        told = "\n".join(await reports_shown(boss))
    assert [words for words in (GO_ON, ANSWER, ANSWERS) if words in told] == [lead]


@requirement("spawn:8", "runs:5")
@pytest.mark.parametrize("is_reset", [False, True])
async def test_a_wait_that_was_called_off_tells_nobody_to_go_on(open_home: OpenHome, is_reset: bool) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        posted = await boss.hears(to_spawn("!sleep 60"), to_spawn("!sleep 60"), YIELD)
        await boss.parks()
        if is_reset:
            await story.resets(boss)
        else:
            await story.cancels(posted)
        await story.settles()
        told = "\n".join(await reports_shown(boss))
    assert "Status: cancelled" in told and GO_ON not in told
    assert is_reset or "this task does not continue. The run was cancelled." in told


# What is told of work that went through several runs.


@requirement("spawn:7")
async def test_work_without_a_last_reply_is_told_by_what_its_tools_brought_else_by_what_it_said(
    open_home: OpenHome,
) -> None:
    spawn = {"name": "sessions_spawn", "arguments": {"task": "!sleep 1"}}
    looking = [{"calls": [{"name": "look"}]}]
    work = [{"text": "I found 42.", "calls": [spawn]}, {"calls": [{"name": "sessions_yield"}]}]

    def look() -> str:
        """Looks."""
        return "what it saw"

    found: list[str] = []
    async with telling(open_home, Parts(tools=[look]), **NESTED) as story:
        for name, before in (("one", []), ("two", looking)):
            boss = await story.opens(name)
            await boss.spawns("go", model=story.script([*before, *work], [{"text": ""}]))
            await story.settles()
            (record,) = await boss.records()
            found.append(record.result)
            assert "Notes: The sub-agent" in record.text
    assert found == ["I found 42.", "what it saw"]
