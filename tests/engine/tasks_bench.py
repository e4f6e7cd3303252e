"""A bench for tasks: a home with a clock set by hand, whose scheduler looks when the test says so."""

from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import pytest

from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.errors import AntiphonError
from antiphon.domain.event import Event
from antiphon.domain.ids import AgentId, RunId
from antiphon.domain.message import UserMessage, text_of
from antiphon.domain.person import PersonRole, person_principal
from antiphon.domain.schedule import Schedule, Trigger, parse_every
from antiphon.domain.send_to import parse_send_to
from antiphon.domain.session import DeliveryContext
from antiphon.domain.stored_task import NewTask, StoredTask, TaskSlot
from antiphon.domain.targets import NamedTarget
from antiphon.domain.task import MissedPolicy, SlotOutcome, TaskLimits
from antiphon.engine.schedules.tasks import Tasks
from antiphon.engine.sessions.sessions import SessionAttributes
from antiphon.store.database import Query
from tests.conftest import OpenHome
from tests.engine.stage import START, ManualClock, config, read_log
from tests.waiting import SECONDS

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
        place: DeliveryContext | None = None,
        send_to: str = "chat",
    ) -> StoredTask:
        trigger = trigger or parse_every(every, self.clock.now())
        new = NewTask(
            name=name,
            prompt=prompt,
            schedule=Schedule(trigger, zone),
            missed=missed,
            limits=limits or TaskLimits(),
            keeps_context=keeps_context,
            send_to=parse_send_to(send_to),
        )
        (made,) = await self.tasks.create(by, self.target(session), [new], place=place)
        return made

    async def passes(self, time: timedelta) -> None:
        """That time passes, and everything due then has been done."""
        self.clock.pass_time(time)
        await self.app.scheduler.settle_due()
        await self.rests()

    async def rests(self) -> None:
        """No run is at work or queued any more. A run that begins to wait for a yes ends no wait: it is looked for."""
        with anyio.fail_after(SECONDS):
            while unfinished := await self.app.database.read(_unfinished):
                for run in unfinished:
                    await self.app.services.waits.wait(run, timedelta(milliseconds=100))

    async def slots(self, task: StoredTask) -> Sequence[TaskSlot]:
        return await self.tasks.runs(OWNER, task.id, limit=100)

    async def outcomes(self, task: StoredTask) -> list[tuple[float, SlotOutcome | None]]:
        """The hours after the start of the slots, with what became of them."""
        slots = await self.slots(task)
        return [((slot.slot_at - START) / HOUR, slot.outcome) for slot in reversed(slots)]

    async def events(self, task: StoredTask) -> list[Event]:
        """The log of the task's session, over all incarnations."""
        return await read_log(self.app, str(task.key))

    async def prompts(self, task: StoredTask) -> list[str]:
        return [
            text_of(event.message.content)
            for event in await self.events(task)
            if isinstance(event.message, UserMessage)
        ]


async def _unfinished(query: Query) -> list[RunId]:
    return [RunId(id) for (id,) in await query.fetch_all("SELECT id FROM runs WHERE status IN ('queued', 'running')")]


@asynccontextmanager
async def bench(open_home: OpenHome, *, parts: dict[str, Any] | None = None, **settings: Any) -> AsyncGenerator[Bench]:
    clock = settings.pop("clock", None) or ManualClock()
    async with open_home(config(**settings), Parts(clock=clock, **(parts or {}))) as app:
        yield Bench(app, clock)


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
