"""Tasks: who makes, sees and changes them, and what they do at their slots. Contract: tasks 1, 2."""

from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from antiphon.app import App, Parts
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.errors import AntiphonError
from antiphon.domain.event import Event
from antiphon.domain.ids import AgentId, RunId, TaskId
from antiphon.domain.message import UserMessage, text_of
from antiphon.domain.person import PersonRole, person_principal
from antiphon.domain.schedule import Schedule, Trigger, parse_every
from antiphon.domain.stored_task import NewTask, StoredTask, TaskSlot
from antiphon.domain.targets import NamedTarget
from antiphon.domain.task import MissedPolicy, SlotOutcome, TaskLimits, TaskState
from antiphon.engine.schedules.tasks import Tasks
from antiphon.engine.sessions.sessions import SessionAttributes
from antiphon.store.database import Query
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import START, ManualClock, config
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


class Bench:
    """A home with a clock set by hand; its scheduler looks when the test says so, and whenever it is woken."""

    def __init__(self, app: App, clock: ManualClock) -> None:
        self.app = app
        self.clock = clock
        self.tasks: Tasks = app.services.tasks

    def target(self, name: str = "main") -> NamedTarget:
        return self.app.services.sessions.target(name)

    async def make(
        self,
        prompt: str = "!say done",
        *,
        every: str = "1h",
        trigger: Trigger | None = None,
        zone: str = "UTC",
        name: str = "Standup",
        by: Principal = OWNER,
        session: str = "main",
        missed: MissedPolicy = MissedPolicy.RUN,
        limits: TaskLimits | None = None,
        keeps_context: bool = False,
    ) -> StoredTask:
        trigger = trigger or parse_every(every, self.clock.now())
        new = NewTask(
            name=name,
            prompt=prompt,
            schedule=Schedule(trigger, zone),
            missed=missed,
            limits=limits or TaskLimits(),
            keeps_context=keeps_context,
        )
        (made,) = await self.tasks.create(by, self.target(session), [new])
        return made

    async def passes(self, time: timedelta) -> None:
        """That time passes, and everything due then has been done."""
        self.clock.pass_time(time)
        await self.app.scheduler.fire_all_due()
        await self.rests()

    async def rests(self) -> None:
        """No run is at work or queued any more."""
        while True:
            unfinished = await self.app.database.read(_unfinished)
            if not unfinished:
                return
            for run in unfinished:
                await self.app.services.waits.wait(run, timedelta(seconds=SECONDS))

    async def slots(self, task: StoredTask) -> Sequence[TaskSlot]:
        return await self.tasks.runs(OWNER, task.id, limit=50)

    async def outcomes(self, task: StoredTask) -> list[tuple[float, SlotOutcome | None]]:
        """The hours after the start of the slots, with what became of them."""
        slots = await self.slots(task)
        return [((slot.slot_at - START) / HOUR, slot.outcome) for slot in reversed(slots)]

    async def events(self, task: StoredTask) -> list[Event]:
        return (await self.app.services.history.page(OWNER, self.target(str(task.key)), limit=200)).events

    async def prompts(self, task: StoredTask) -> list[str]:
        return [
            text_of(event.message.content)
            for event in await self.events(task)
            if isinstance(event.message, UserMessage)
        ]


async def _unfinished(query: Query) -> list[RunId]:
    return [RunId(id) for (id,) in await query.fetch_all("SELECT id FROM runs WHERE status IN ('queued', 'running')")]


@asynccontextmanager
async def bench(open_home: OpenHome, **settings: Any) -> AsyncGenerator[Bench]:
    clock = ManualClock()
    async with open_home(config(**settings), Parts(clock=clock)) as app:
        yield Bench(app, clock)


@requirement("tasks:1")
async def test_a_task_fires_at_each_of_its_slots_once(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        task = await b.make("!say done", every="1h")
        assert (task.state, task.next_at, task.agent_id) == (TaskState.ACTIVE, START + HOUR, "main")
        await b.passes(timedelta(minutes=59))
        assert await b.slots(task) == []
        for _ in range(3):
            await b.passes(timedelta(minutes=20))
            await b.passes(timedelta(minutes=40))
        assert await b.outcomes(task) == [(hour, SlotOutcome.OK) for hour in (1, 2, 3)]
        assert (await b.tasks.get(OWNER, task.id)).runs == 3


async def person(
    b: Bench, name: str, role: PersonRole = PersonRole.USER, agents: Sequence[str] = ("main",)
) -> Principal:
    invited = await b.app.services.people.invite(OWNER, name, role, frozenset(map(AgentId, agents)))
    return person_principal(invited.person.id)


async def own_session(b: Bench, by: Principal) -> str:
    """A session that the person takes part in."""
    id = f"cli:{by.name}"
    target = b.target(f"agent:main:{id}")
    opened = await b.app.services.sessions.open(by, target, attributes=SessionAttributes(is_generated=True))
    return str(opened.session.key)


async def refused(awaitable: Awaitable[object]) -> str:
    """The code with which it is refused."""
    with pytest.raises(AntiphonError) as error:
        await awaitable
    return error.value.code


@requirement("tasks:2")
async def test_ids_are_shown_and_changed_within_the_same_session_or_by_owners(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        mum, dad, guest = await person(b, "mum"), await person(b, "dad"), await person(b, "kid", PersonRole.USER)
        hers, his = await own_session(b, mum), await own_session(b, dad)
        task = await b.make(by=mum, session=hers)
        assert task.maker == mum and task.session_key == hers
        assert [each.id for each in await b.tasks.list(mum, limit=10)] == [task.id]
        assert [each.id for each in await b.tasks.list(OWNER, b.target(hers), limit=10)] == [task.id]
        assert await b.tasks.list(OWNER, b.target(his), limit=10) == []
        assert await b.tasks.list(dad, limit=10) == []
        missing = TaskId("task-0000000000")
        for other in (dad, guest):
            for act in (b.tasks.get, b.tasks.pause, b.tasks.resume, b.tasks.cancel, b.tasks.run):
                with pytest.raises(AntiphonError) as hidden:
                    await act(other, task.id)
                with pytest.raises(AntiphonError) as absent:
                    await act(other, missing)
                assert hidden.value.code == absent.value.code == "not_found"
                assert hidden.value.message.replace(task.id, missing) == absent.value.message
        assert (await b.tasks.get(OWNER, task.id, b.target(his))).id == task.id
        assert (await b.tasks.pause(OWNER, task.id)).state is TaskState.PAUSED
        assert (await b.tasks.resume(mum, task.id)).state is TaskState.ACTIVE
        assert (await b.tasks.cancel(mum, task.id)).id == task.id
        assert await refused(b.tasks.get(OWNER, task.id)) == "not_found"
