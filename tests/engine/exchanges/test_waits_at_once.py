"""Of two runs that begin to wait for one another at the same time, one is told so."""

from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, TypeVar, TypeVarTuple

import anyio
import pytest

from antiphon.building import Parts
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Conflict, Unavailable
from antiphon.domain.ids import RunId, SessionRow
from antiphon.engine.access.caller import Caller
from antiphon.engine.children.wait import ChildWaits, begin_wait
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from antiphon.store.database import Database, Named, Query, Transaction
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import HeldRunner
from tests.story import telling
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class ShownRunner(HeldRunner):
    """Also shows the contexts of its runs."""

    def __init__(self) -> None:
        super().__init__()
        self.contexts: dict[RunId, RunContext] = {}

    async def run(self, context: RunContext) -> RunEnding:
        self.contexts[context.run.id] = context
        return await super().run(context)


class MeetingDatabase:
    """Units that begin a wait meet before they commit, unless one excludes the other."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._begun = 0
        self._both = anyio.Event()

    @property
    def failure(self) -> Unavailable | None:
        return self._database.failure

    @property
    def trouble(self) -> Unavailable | None:
        return self._database.trouble

    async def run(
        self,
        unit: Callable[[Transaction, *Ts], Coroutine[Any, Any, R]],
        *arguments: *Ts,
        sessions: Sequence[Named] = (),
    ) -> R:
        async def meet(tx: Transaction, *arguments: *Ts) -> R:
            found = await unit(tx, *arguments)
            if unit is begin_wait:
                await self._meet()
            return found

        return await self._database.run(meet, *arguments, sessions=sessions)

    async def _meet(self) -> None:
        self._begun += 1
        if self._begun > 1:
            self._both.set()
        with anyio.move_on_after(1):
            await self._both.wait()

    async def read(self, query: Callable[[Query, *Ts], Coroutine[Any, Any, R]], *arguments: *Ts) -> R:
        return await self._database.read(query, *arguments)

    async def close(self) -> None:
        await self._database.close()


@requirement("spawn:8", "send:7")
async def test_two_waits_that_begin_at_once_do_not_wait_for_one_another(
    open_home: OpenHome, database_section: DatabaseSection
) -> None:
    if database_section.url is None:
        pytest.skip("units of SQLite run one after the other")
    runner = ShownRunner()
    async with telling(open_home, Parts(runner=runner)) as story:
        services = story.app.services
        child_waits = ChildWaits(
            MeetingDatabase(story.app.database), services.waits, services.rules.sinks, services.clock
        )
        a, b = await story.opens("a"), await story.opens("b")
        of_a, of_b = await a.hears("hold a"), await b.hears("hold b")
        await runner.until_begun(2)
        to_b = RunId((await a.calls("sessions_send", label="b", message="x", timeoutSeconds=0))["runId"])
        to_a = RunId((await b.calls("sessions_send", label="a", message="x", timeoutSeconds=0))["runId"])
        ends: list[str] = []

        async def wait(own: RunId, other: RunId) -> None:
            context = runner.contexts[own]
            session, agent = SessionRow(context.run.session), context.agent.id
            caller = Caller(session=session, agent_id=agent, principal=OWNER, call_id=f"{own}-1-0", run=context)
            try:
                await child_waits.wait(caller, (other,), timedelta(seconds=60), for_all=True)
                ends.append("came")
            except Conflict as error:
                ends.append(error.code)
                runner.release_later()
                runner.release(own)

        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait, of_a, to_b)
                tasks.start_soon(wait, of_b, to_a)
        runner.release_all()
        assert sorted(ends) == ["came", "wait_cycle"]
