"""A deep and wide tree of children, called off at its root while it is at work: nothing is left, nothing hangs."""

import json
from datetime import timedelta
from typing import Any

import anyio
import pytest

from antiphon.agents.toolset import ToolContext
from antiphon.building import App, Parts
from antiphon.domain.message import JsonObject, ReportStage, UserMessage, text_of
from antiphon.domain.run import Outcome, RunStatus
from antiphon.engine.access.caller import Caller
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from antiphon.policy.caps import PersonCaps
from antiphon.store.database import Query
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.logs import whole_log
from tests.story import Story, telling
from tests.waiting import at_least

pytestmark = pytest.mark.anyio

DEPTH = 3
SLOTS = 16
END_SECONDS = 30
"""Contract: a tree that was called off has ended within this."""
GROW_SECONDS = at_least(120)
"""For a thousand sessions to be made."""


class Planter:
    """Spawns the same number of children down to the depth; most runs yield for them, some stay at work, leaves too."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._app: App | None = None
        self._spawned = 0
        self._levels = [anyio.Event() for _ in range(DEPTH)]
        """Set once all sessions of the level are there."""
        self._working = 0
        self._changed = anyio.Event()

    def serve(self, app: App) -> None:
        self._app = app

    @property
    def size(self) -> int:
        """Sessions below the root."""
        return self._count(DEPTH)

    def _count(self, depth: int) -> int:
        return sum(self._width**level for level in range(1, depth + 1))

    async def run(self, context: RunContext) -> RunEnding:
        session = (await context.open(PersonCaps())).session
        if session.depth == DEPTH:
            await self._work()
        if session.depth:
            # Else deeper ones could take all places before the last of a level had begun.
            await self._levels[session.depth].wait()
        deeper = session.depth + 1
        for number in range(self._width):
            answer = await self._call(context, "sessions_spawn", str(number), task=str(number))
            assert answer["status"] == "accepted", answer
            self._spawned += 1
            if deeper < DEPTH and self._spawned == self._count(deeper):
                self._levels[deeper].set()
            self._changed.set()
        if session.depth == 2 and await self._is_eldest(context):
            await self._work()
        assert (await self._call(context, "sessions_yield", "yield"))["status"] == "ok"
        return RunEnding(outcome=Outcome(status=RunStatus.OK, reply="yields"))

    async def until_grown(self) -> None:
        """Returns when all are spawned, and as many as can be are at work."""
        with anyio.fail_after(GROW_SECONDS):
            while self._spawned < self.size or self._working < SLOTS:
                self._changed = anyio.Event()
                await self._changed.wait()

    async def _work(self) -> None:
        self._working += 1
        self._changed.set()
        await anyio.sleep_forever()

    async def _is_eldest(self, context: RunContext) -> bool:
        transcript = await context.read_log()
        task = transcript.newest_input(context.run.id)
        return task is not None and text_of(task.message.content) == "0"

    async def _call(self, context: RunContext, name: str, call: str, **arguments: str) -> JsonObject:
        assert self._app is not None
        tool = self._app.tools.find(name)
        assert tool is not None
        run = context.run
        caller = Caller(
            session=run.session,
            agent_id=context.agent.id,
            principal=run.principal,
            call_id=f"{run.id}-{call}",
            run=context,
        )
        return json.loads((await tool.call(ToolContext(caller), dict(arguments))).text)


@requirement("spawn:8", "spawn:7", "runs:5")
async def test_a_tree_that_is_called_off_at_its_root_ends_whole_and_soon(open_home: OpenHome, *, is_soak: bool) -> None:
    planter = Planter(10 if is_soak else 4)
    limits: dict[str, Any] = {
        "agents__defaults__subagents__max_spawn_depth": DEPTH,
        "agents__defaults__subagents__max_children_per_agent": 10,
        "runs__max_concurrent": SLOTS,
    }
    async with telling(open_home, Parts(runner=planter), **limits) as story:
        planter.serve(story.app)
        root = await story.opens("root")
        await root.hears("grow")
        await planter.until_grown()
        before = await story.runs()
        assert len([run for run in before if run.is_parked]) > 1
        assert len([run for run in before if run.status is RunStatus.RUNNING]) == SLOTS
        assert len([run for run in before if run.status is RunStatus.QUEUED]) > SLOTS
        began = anyio.current_time()
        with anyio.fail_after(END_SECONDS):
            cancelled = await story.cancels_work_of(root)
            await until_all_ended(story)
        print(f"{planter.size} sessions ended in {anyio.current_time() - began:.2f} s")
        assert cancelled.below == planter.size
        after = await story.runs()
        assert not [run for run in after if run.is_parked or not run.status.is_terminal]
        assert {run.status for run in after if run.code != "yielded"} == {RunStatus.CANCELLED}
        assert await story.app.database.read(count_open_reports) == 0
        recorded = await story.app.database.read(list_recorded)
        assert len(recorded) == len(set(recorded)) == planter.size
        await root.spawns("again")


async def until_all_ended(story: Story) -> None:
    """What follows from a run's end is queued in the same transaction, so that an empty ledger stays empty."""
    while unfinished := [run for run in await story.runs() if not run.status.is_terminal]:
        await story.app.services.waits.wait(unfinished[0].id, timedelta(seconds=END_SECONDS))


async def count_open_reports(query: Query) -> int:
    return (await query.fetch_all("SELECT COUNT(*) FROM reports WHERE stage = 'open'"))[0][0]


async def list_recorded(query: Query) -> list[str]:
    """The report of each record in any log."""
    sessions = await query.fetch_all("SELECT id FROM sessions")
    found: list[str] = []
    for (session,) in sessions:
        for event in await whole_log(query, session):
            message = event.message
            report = message.report if isinstance(message, UserMessage) else None
            if report is not None and report.stage is ReportStage.RECORD:
                found.append(report.id)
    return found
