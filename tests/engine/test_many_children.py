"""Twenty children that a run yields or waits for, with a restart between their spawning and their ends."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import anyio
import pytest

import antiphon
from antiphon.agents.toolset import ToolContext
from antiphon.app import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import RunId
from antiphon.domain.run import RunStatus
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.family import records, spawn_directive, until
from tests.engine.parley import key_of, open_peer, runs_of, settings, settle
from tests.engine.stage import ManualClock, find_run, post, wait_end

pytestmark = pytest.mark.anyio

COUNT = 20
SETTINGS: dict[str, Any] = {
    "agents__defaults__subagents__max_children_per_agent": COUNT,
    "runs__max_concurrent": 1,
    "gateway__drain_seconds": 0,
}


class Gate:
    """Tools: one that returns when the test lets it, one that spawns children which call it and waits for all."""

    def __init__(self) -> None:
        self.app: App | None = None
        self.may_end = anyio.Event()

    @property
    def parts(self) -> Parts:
        return Parts(
            tools=[
                antiphon.tool(self.gate, effects=["writes"], is_idempotent=True),
                antiphon.tool(self.wait_all, effects=["writes"], is_idempotent=True),
            ]
        )

    async def gate(self) -> str:
        """Waits."""
        await self.may_end.wait()
        return "through"

    async def wait_all(self, context: ToolContext) -> str:
        """Spawns children and waits for all of them; the same ones where the call is repeated."""
        assert self.app is not None
        spawn, wait = self.app.tools.find("sessions_spawn"), self.app.tools.find("sessions_wait")
        assert spawn is not None and wait is not None
        run_ids: list[str] = []
        for number in range(COUNT):
            own = ToolContext(replace(context.caller, call_id=f"{context.call_id}-{number}"))
            run_ids.append(json.loads((await spawn.call(own, {"task": "!call gate {}"})).text)["runId"])
        return (await wait.call(context, {"runIds": [*run_ids], "timeoutSeconds": 600})).text


def children() -> str:
    return "\n".join(spawn_directive("!call gate {}") for _ in range(COUNT))


@requirement("spawn:8", "runs:8")
async def test_a_yield_for_twenty_goes_on_once_after_a_restart(open_home: OpenHome) -> None:
    gate = Gate()
    async with open_home(settings(**SETTINGS), gate.parts) as app:
        await open_peer(app, "boss")
        posted = await post(app, key_of("boss"), f"{children()}\n!call sessions_yield {{}}")
        await until_one_child_works(app)
    async with open_home(settings(**SETTINGS), gate.parts) as app:
        await until_one_child_works(app)
        assert (await find_run(app, posted.run_id)).is_parked
        gate.may_end.set()
        run = await wait_end(app, posted.run_id)
        assert run.reply == "echo: " + "\n".join(["through"] * COUNT)
        await settle(app)
        found = await records(app, key_of("boss"))
        assert len({record.id for record in found}) == len(found) == COUNT
        assert [record.has_run for record in found] == [False] * (COUNT - 1) + [True]
        assert len(found[-1].answers) == COUNT
        assert await runs_of(app, key_of("boss")) == 2


@requirement("spawn:8", "runs:8", "runs:1")
async def test_a_wait_for_twenty_goes_on_after_a_restart_with_its_deadline_and_without_a_slot(
    open_home: OpenHome,
) -> None:
    """The one slot is a child's while the wait goes on."""
    gate = Gate()
    async with open_home(settings(**SETTINGS), gate.parts) as app:
        gate.app = app
        await open_peer(app, "boss")
        posted = await post(app, key_of("boss"), "!call wait_all {}")
        deadline = await until_waiting(app, posted.run_id)
        await until_one_child_works(app)
    async with open_home(settings(**SETTINGS), gate.parts) as app:
        gate.app = app
        await until_one_child_works(app)
        assert await until_waiting(app, posted.run_id) == deadline
        gate.may_end.set()
        answer = json.loads((await wait_end(app, posted.run_id)).reply or "")
        assert answer["status"] == "ok"
        assert [(entry["status"], entry["reply"]) for entry in answer["runs"]] == [("ok", "through")] * COUNT
        await settle(app)
        assert len(await records(app, key_of("boss"))) == COUNT


@requirement("spawn:8", "runs:8")
async def test_a_wait_whose_time_was_over_during_a_restart_is_answered_at_once(open_home: OpenHome) -> None:
    gate, clock = Gate(), ManualClock()
    config, parts = settings(**{**SETTINGS, "runs__max_concurrent": 2 * COUNT}), replace(gate.parts, clock=clock)
    async with open_home(config, parts) as app:
        gate.app = app
        await open_peer(app, "boss")
        posted = await post(app, key_of("boss"), "!call wait_all {}")
        await until_waiting(app, posted.run_id)
    clock.pass_time(timedelta(seconds=601))
    async with open_home(config, parts) as app:
        gate.app = app
        answer = json.loads((await wait_end(app, posted.run_id)).reply or "")
        assert (answer["status"], len(answer["runs"])) == ("timeout", COUNT)
        gate.may_end.set()
        await settle(app)
        assert len(await records(app, key_of("boss"))) == COUNT


async def until_one_child_works(app: App) -> None:
    await until(app, lambda runs: any(run.report is not None and run.status is RunStatus.RUNNING for run in runs))


async def until_waiting(app: App, run_id: RunId | None) -> object:
    """The time until which the run waits, once it does."""
    assert run_id is not None
    await until(app, lambda runs: any(run.id == run_id and len(run.waiting_for) == COUNT for run in runs))
    return (await app.services.runs.get(OWNER, run_id)).wait_until
