"""What a turn reads: each read is a thread's work and two switches between threads."""

import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar, TypeVarTuple

import anyio
import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.message import text_content
from antiphon.domain.run import RunStatus
from antiphon.engine.ledger.spending import find_spent_today
from antiphon.engine.ledger.waits import POLL_SECONDS
from antiphon.engine.runs import context
from antiphon.engine.runs.context import RunContext, find_beside
from antiphon.engine.runs.runner import RunEnding
from antiphon.policy.caps import PersonCaps
from antiphon.store import runs as ledger
from antiphon.store.database import Database, Query
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import HeldRunner, ManualClock
from tests.story import telling
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class Reads:
    """The queries that are read from now on, in order."""

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queries: list[object] = []
        self._changed = anyio.Event()
        read = database.read

        async def noted(query: Callable[[Query, *Ts], Coroutine[Any, Any, R]], *arguments: *Ts) -> R:
            self.queries.append(query)
            self._changed.set()
            return await read(query, *arguments)

        monkeypatch.setattr(database, "read", noted)

    def of(self, *queries: object) -> list[object]:
        return [query for query in self.queries if query in queries]

    async def until(self, query: object) -> None:
        with anyio.fail_after(SECONDS):
            while query not in self.queries:
                await self._changed.wait()
                self._changed = anyio.Event()


async def test_a_step_begins_with_two_reads(open_home: OpenHome, monkeypatch: pytest.MonkeyPatch) -> None:
    async with telling(open_home, Parts(clock=ManualClock())) as story:
        desk = await story.opens("desk")
        await desk.answers("one")
        reads = Reads(story.app.database, monkeypatch)
        await desk.answers("two")
        names = (context._read_opening, context._read_first_page, find_beside)  # pyright: ignore[reportPrivateUsage]
        assert reads.of(*names) == [names[0], find_beside]


class OpeningRunner(HeldRunner):
    """Opens each run, reads the log so often, and asks what was spent, once so much time has passed."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.release_all()
        self.logs_read = 1
        self.passed = timedelta()
        self._clock = clock

    async def run(self, context: RunContext) -> RunEnding:
        await context.open(PersonCaps())
        self._clock.pass_time(self.passed)
        for _ in range(self.logs_read):
            await context.read_log()
        await context.spent_today(PersonCaps())
        return await super().run(context)


@requirement("runs:6")
@pytest.mark.parametrize(
    ("logs_read", "passed", "pages_anew"),
    [
        (1, timedelta(), 0),
        (1, timedelta(seconds=1), 1),  # its model or its tools took so long to begin
        (2, timedelta(), 1),  # calls were carried out in between
    ],
)
async def test_what_a_run_read_as_it_began_counts_only_then(
    open_home: OpenHome, monkeypatch: pytest.MonkeyPatch, logs_read: int, passed: timedelta, pages_anew: int
) -> None:
    clock = ManualClock()
    runner = OpeningRunner(clock)
    async with telling(open_home, Parts(runner=runner, clock=clock)) as story:
        desk = await story.opens("desk")
        runner.logs_read, runner.passed = logs_read, passed
        reads = Reads(story.app.database, monkeypatch)
        await desk.answers("hello")
        name = context._read_first_page  # pyright: ignore[reportPrivateUsage]
        of_runner = 1  # `HeldRunner` reads the log once itself
        assert len(reads.of(name)) == pages_anew + of_runner
        assert len(reads.of(find_spent_today)) == (1 if pages_anew else 0)


@requirement("runs:3")
async def test_a_wait_looks_at_the_beginning_and_at_the_end(
    open_home: OpenHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = HeldRunner()
    async with telling(open_home, Parts(runner=runner)) as story:
        desk = await story.opens("desk")
        run_id = await desk.hears("hold")
        await runner.until_begun(1)
        row = (await desk.session()).row
        reads, began = Reads(story.app.database, monkeypatch), time.monotonic()
        ends: list[RunStatus | None] = []

        async def wait() -> None:
            run = await story.app.services.waits.wait(run_id, timedelta(seconds=SECONDS), row)
            ends.append(None if run is None else run.status)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await reads.until(ledger.find)
            for number in range(20):
                aside = text_content(f"aside {number}")
                await story.app.services.inbox.append(OWNER, desk.target, aside)
            runner.release_all()
        assert ends == [RunStatus.OK]
        polls = (time.monotonic() - began) / POLL_SECONDS
        assert len(reads.of(ledger.find)) <= 2 + polls
