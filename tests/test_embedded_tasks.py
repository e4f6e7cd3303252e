"""A program opens a home in one task and leaves it in another, approves calls, and learns why the system failed."""

import asyncio
import os
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

import antiphon
from antiphon.building import Parts
from antiphon.config.config import Config
from antiphon.domain.errors import Conflict, Invalid, Unavailable
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from tests.claims import requirement
from tests.cli.program import antiphon as antiphon_command
from tests.waiting import SECONDS

T = TypeVar("T")


def wipe(name: str) -> str:
    """Deletes."""
    return f"wiped {name}"


WIPE = '!call wipe {"name": "old"}'


class Cells:
    """Runs each piece of a program as a task of its own on one loop: as cells of a notebook, and fixtures, do."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, cell: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(asyncio.wait_for(cell, SECONDS))

    def close(self) -> None:
        self._runner.close()


@pytest.fixture
def cells() -> Any:
    cells = Cells()
    yield cells
    cells.close()


@requirement("cli:1")
def test_a_home_is_entered_in_one_task_used_in_another_and_left_in_a_third(home: Path, cells: Cells) -> None:
    opening = antiphon.open(home)
    app = cells.run(opening.__aenter__())

    async def use() -> str:
        session = await app.sessions.open("notes")
        return (await (await session.post("hello")).wait()).reply or ""

    assert cells.run(use()) == "echo: hello"
    cells.run(opening.__aexit__(None, None, None))

    async def late() -> None:
        with pytest.raises(Conflict) as raised:
            await app.sessions.get("notes")
        assert raised.value.code == "closed"

    cells.run(late())
    with pytest.raises(Conflict):  # it is used once
        cells.run(opening.__aenter__())
    again = antiphon.open(home)
    app = cells.run(again.__aenter__())
    assert cells.run(use()) == "echo: hello"
    cells.run(again.__aexit__(None, None, None))


@requirement("cli:1")
def test_a_fixture_that_yields_the_app_ends_in_another_task(home: Path, cells: Cells) -> None:
    """As pytest-asyncio drives an asynchronous generator: each step is a task."""

    async def fixture() -> AsyncGenerator[antiphon.Antiphon]:
        async with antiphon.open(home) as app:
            yield app

    steps = fixture()

    async def step() -> antiphon.Antiphon:
        return await anext(steps)

    app = cells.run(step())
    assert cells.run(app.who()).processes is not None
    with pytest.raises(StopAsyncIteration):
        cells.run(step())


def test_a_loop_that_ends_without_leaving_the_home_lets_it_go(home: Path) -> None:
    for _ in range(2):
        cells = Cells()
        cells.run(antiphon.open(home).__aenter__())
        cells.close()


@pytest.mark.anyio
async def test_an_opening_that_is_cancelled_leaves_nothing_behind(home: Path) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with antiphon.open(home):
            pass
    assert scope.cancelled_caught
    async with antiphon.open(home):
        pass


class PlantedEnd(BaseException):
    """Ends the system, as nothing that is an `Exception` does."""


class EndingRunner:
    """Its run ends the whole system when it is let go."""

    def __init__(self) -> None:
        self.let_go = anyio.Event()

    async def run(self, context: RunContext) -> RunEnding:
        await self.let_go.wait()
        raise PlantedEnd("planted")


@requirement("cli:1")
@pytest.mark.anyio
async def test_an_error_of_the_system_closes_it_and_is_the_cause_for_who_uses_it(home: Path) -> None:
    runner = EndingRunner()
    config = Config.model_validate({"gateway": {"drain_seconds": 0}})
    with pytest.raises(PlantedEnd, match="planted"):
        async with antiphon.open(home, config=config, parts=Parts(runner=runner)) as app:
            session = await app.sessions.open("notes")
            run = await session.post("hello")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_waits_in_vain, run)
                await anyio.wait_all_tasks_blocked()
                runner.let_go.set()
            with pytest.raises(Unavailable) as raised:
                await session.status()
            assert raised.value.code == "app_failed" and isinstance(raised.value.__cause__, PlantedEnd)
            assert "planted" in raised.value.message


async def _waits_in_vain(run: antiphon.RunHandle) -> None:
    with pytest.raises(Unavailable) as raised:
        await run.wait()
    assert raised.value.code == "app_failed" and isinstance(raised.value.__cause__, PlantedEnd)


@asynccontextmanager
async def asking(home: Path) -> AsyncGenerator[tuple[antiphon.Antiphon, antiphon.RunHandle]]:
    async with antiphon.open(home, tools=[antiphon.tool(wipe, effects=["deletes"])]) as app:
        session = await app.sessions.open("cleaning")
        yield app, await session.post(WIPE)


@requirement("cli:1", "approvals:3")
@pytest.mark.anyio
@pytest.mark.parametrize(("decision", "said"), [("once", "wiped old"), ("deny", "denied")])
async def test_a_tool_that_deletes_waits_for_the_program_to_decide(home: Path, decision: Any, said: str) -> None:
    with anyio.fail_after(SECONDS):
        async with asking(home) as (app, run):
            seen = list[antiphon.Approval]()
            async for request in app.approvals.follow():
                seen.append(request)
                if request.state is antiphon.ApprovalState.DECIDED:
                    break
                (call,) = request.calls
                assert (call.tool, call.arguments) == ("wipe", '{"name":"old"}')
                assert await app.approvals.list(status="pending") == [request]
                decided = await app.approvals.decide(request.id, decision, note="by the program")
                assert (await app.approvals.wait(request.id)) == decided == await app.approvals.get(request.id)
            assert [each.state for each in seen] == [antiphon.ApprovalState.PENDING, antiphon.ApprovalState.DECIDED]
            assert said in ((await run.wait()).reply or "")
            assert await app.approvals.list(status="pending") == []
            assert [each.id for each in await app.approvals.list(session="api:cleaning")] == [seen[0].id]
            with pytest.raises(Conflict) as late:
                await app.approvals.decide(seen[0].id, "once")
            assert late.value.code == "approval_decided"


@pytest.mark.anyio
async def test_a_decision_that_is_none_is_refused_by_name(home: Path) -> None:
    with anyio.fail_after(SECONDS):
        async with asking(home) as (app, _):
            request = await anext(app.approvals.follow())
            for wrong in ({}, {"decision": "perhaps"}, {"decision": "once", "decisions": {"1": "once"}}):
                with pytest.raises(Invalid):
                    await app.approvals.decide(request.id, **wrong)  # type: ignore[arg-type]
            assert (await app.approvals.decide(request.id, decisions={"1": "deny"})).state is not None


@pytest.mark.anyio
async def test_who_follows_requests_learns_that_the_home_was_closed(home: Path) -> None:
    ended = anyio.Event()

    async def follow(app: antiphon.Antiphon) -> None:
        with pytest.raises(Conflict) as raised:
            async for _ in app.approvals.follow():
                pass
        assert raised.value.code == "closed"
        ended.set()

    async with anyio.create_task_group() as tasks:
        async with antiphon.open(home) as app:
            tasks.start_soon(follow, app)
            await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(SECONDS):
            await ended.wait()


@requirement("cli:1")
@pytest.mark.anyio
@pytest.mark.parametrize("command", [("sessions", "list"), ("serve", "--port", "0")], ids=" ".join)
async def test_a_command_says_at_once_which_program_has_the_home(home: Path, command: tuple[str, ...]) -> None:
    async with antiphon.open(home):
        said = await anyio.to_thread.run_sync(lambda: antiphon_command(*command, home=home))
        shown = " ".join(said.stderr.split())
        assert said.returncode != 0 and f"process {os.getpid()}" in shown, shown
        assert "Python program" in shown and "since 20" in shown and "waiting" not in shown
