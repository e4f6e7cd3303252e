"""Twenty children that a run yields or waits for, with a restart between their spawning and their ends."""

import json
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

import antiphon
from antiphon.agents.toolset import ToolContext
from antiphon.building import App, Parts
from antiphon.domain.ids import RunId
from antiphon.domain.run import RunStatus
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import YIELD, to_call, to_spawn, wait_at
from tests.engine.gates import Gates
from tests.engine.stage import ManualClock
from tests.story import Story, telling

pytestmark = pytest.mark.anyio

COUNT = 20
SETTINGS: dict[str, Any] = {
    "agents__defaults__subagents__max_children_per_agent": COUNT,
    "runs__max_concurrent": 1,
    "gateway__drain_seconds": 0,
}


class Waiting:
    """A tool that spawns children which wait at a gate, and waits for all of them."""

    def __init__(self) -> None:
        self.app: App | None = None

    @property
    def parts(self) -> Parts:
        return Parts(tools=[antiphon.tool(self.wait_all, effects=["writes"], is_idempotent=True)])

    async def wait_all(self, context: ToolContext) -> str:
        """Spawns children and waits for all of them; the same ones where the call is repeated."""
        assert self.app is not None
        spawn, wait = self.app.tools.find("sessions_spawn"), self.app.tools.find("sessions_wait")
        assert spawn is not None and wait is not None
        run_ids: list[str] = []
        for number in range(COUNT):
            own = ToolContext(replace(context.caller, call_id=f"{context.call_id}-{number}"))
            run_ids.append(json.loads((await spawn.call(own, {"task": wait_at("end")})).text)["runId"])
        return (await wait.call(context, {"runIds": [*run_ids], "timeoutSeconds": 600})).text


@requirement("spawn:8", "runs:8")
async def test_a_yield_for_twenty_goes_on_once_after_a_restart(open_home: OpenHome) -> None:
    gates = Gates()
    async with telling(open_home, gates=gates, **SETTINGS) as story:
        boss = await story.opens("boss")
        posted = await boss.hears(*(to_spawn(wait_at("end")) for _ in range(COUNT)), YIELD)
        await until_one_child_works(story)
    async with telling(open_home, gates=gates, **SETTINGS) as story:
        await until_one_child_works(story)
        assert (await story.run(posted)).is_parked
        story.opens_gate("end")
        run = await story.end_of(posted)
        assert run.reply == "echo: " + "\n".join(["open"] * COUNT)
        await story.settles()
        boss = story.session("boss")
        found = await boss.records()
        assert len({record.id for record in found}) == len(found) == COUNT
        assert [record.has_run for record in found] == [False] * (COUNT - 1) + [True]
        assert len(found[-1].answers) == COUNT
        assert len(await boss.runs()) == 2


@requirement("spawn:8", "runs:8", "runs:1")
async def test_a_wait_for_twenty_goes_on_after_a_restart_with_its_deadline_and_without_a_slot(
    open_home: OpenHome,
) -> None:
    """The one slot is a child's while the wait goes on."""
    tool, gates = Waiting(), Gates()
    async with telling(open_home, tool.parts, gates=gates, **SETTINGS) as story:
        tool.app = story.app
        boss = await story.opens("boss")
        posted = await boss.hears(to_call("wait_all"))
        deadline = await until_waiting(story, posted)
        await until_one_child_works(story)
    async with telling(open_home, tool.parts, gates=gates, **SETTINGS) as story:
        tool.app = story.app
        await until_one_child_works(story)
        assert await until_waiting(story, posted) == deadline
        story.opens_gate("end")
        answer = json.loads((await story.end_of(posted)).reply or "")
        assert answer["status"] == "ok"
        assert [(entry["status"], entry["reply"]) for entry in answer["runs"]] == [("ok", "open")] * COUNT
        await story.settles()
        assert len(await story.session("boss").records()) == COUNT


@requirement("spawn:8", "runs:8")
async def test_a_wait_whose_time_was_over_during_a_restart_is_answered_at_once(open_home: OpenHome) -> None:
    tool, gates, clock = Waiting(), Gates(), ManualClock()
    parts, more = replace(tool.parts, clock=clock), {**SETTINGS, "runs__max_concurrent": 2 * COUNT}
    async with telling(open_home, parts, gates=gates, **more) as story:
        tool.app = story.app
        boss = await story.opens("boss")
        posted = await boss.hears(to_call("wait_all"))
        await until_waiting(story, posted)
    clock.pass_time(timedelta(seconds=601))
    async with telling(open_home, parts, gates=gates, **more) as story:
        tool.app = story.app
        answer = json.loads((await story.end_of(posted)).reply or "")
        assert (answer["status"], len(answer["runs"])) == ("timeout", COUNT)
        story.opens_gate("end")
        await story.settles()
        assert len(await story.session("boss").records()) == COUNT


async def until_one_child_works(story: Story) -> None:
    await story.until(lambda runs: any(run.report is not None and run.status is RunStatus.RUNNING for run in runs))


async def until_waiting(story: Story, run_id: RunId) -> object:
    """The time until which the run waits, once it does."""
    await story.until(lambda runs: any(run.id == run_id and len(run.waiting_for) == COUNT for run in runs))
    return (await story.run(run_id)).wait_until
