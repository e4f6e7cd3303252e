"""Threads of sub-agents that somebody leads elsewhere in the same moment: one of the two has it, with all that goes."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from antiphon.config.config import DatabaseSection
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import SessionRow
from antiphon.domain.keys import SessionKey
from antiphon.domain.session import DeliveryContext
from antiphon.domain.thread_bindings import BindingLimits
from antiphon.engine.access.bindings import bind, find_binding, unbind
from antiphon.engine.access.places import ChatAddress
from antiphon.engine.chats.routing import change_route
from antiphon.store.database import Transaction
from antiphon.store.thread_bindings import ThreadBinding
from tests.barrier import Barrier, barrier_in
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import Lobby, lobby
from tests.engine.stage import open_session

pytestmark = pytest.mark.anyio

ADDRESS = ChatAddress(channel="telegram", account="default", peer="group:-100", thread="7")
PLACE = DeliveryContext(channel="telegram", account_id="default", to="-100", thread_id="7")


class Thread:
    """A thread of a group, a sub-agent, and another session."""

    def __init__(self, scene: Lobby, child: tuple[SessionRow, SessionKey], other: SessionKey) -> None:
        self.scene = scene
        self._child, self._key = child
        self._other = other
        self._binding: ThreadBinding | None = None

    async def binds(self) -> bool:
        async def unit(tx: Transaction) -> bool:
            return await bind(
                tx, ADDRESS, PLACE, self._child, key=self._key, by=OWNER, limits=BindingLimits(None, None)
            )

        is_bound = await self.scene.app.database.run(unit, sessions=(self._child,))
        self._binding = await self.scene.app.database.read(find_binding, ADDRESS)
        return is_bound

    async def unbinds(self) -> bool:
        binding = self._binding
        assert binding is not None

        async def unit(tx: Transaction) -> bool:
            return await unbind(tx, binding)

        return await self.scene.app.database.run(unit, sessions=(self._child,))

    async def is_led_elsewhere(self, barrier: Barrier | None = None) -> None:
        async def unit(tx: Transaction) -> None:
            await change_route(tx, ADDRESS, agent_id=None, session_key=self._other, by=OWNER)
            if barrier is not None:
                await barrier.pass_by(tx)

        await self.scene.app.database.run(unit, sessions=(self._child,) if barrier is None else ())

    async def leads_to(self) -> tuple[str | None, bool]:
        """The session to which the thread leads, and whether that is as a sub-agent's."""
        ((key,),) = await self.scene.rows("SELECT session_key FROM routes WHERE thread = '7'")
        return key, await self.scene.app.database.read(find_binding, ADDRESS) is not None


@asynccontextmanager
async def a_thread(open_home: OpenHome) -> AsyncGenerator[Thread]:
    async with lobby(open_home) as scene:
        child, other = await open_session(scene.app, "api:child"), await open_session(scene.app, "api:other")
        yield Thread(scene, (child.row, child.key), other.key)


async def at_once(barrier: Barrier, first: Any, then: Callable[[], Any]) -> list[Any]:
    """The second begins when the first has written, and has not committed; what the second returns."""
    ended = list[Any]()

    async def second() -> None:
        ended.append(await then())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first, barrier)
        await barrier.wait_for(1)
        tasks.start_soon(second)
        await barrier.wait_for(2, or_once=ended)
        barrier.open()
    return ended


@requirement("spawn:4", "channels:2")
@pytest.mark.parametrize("was_led", [False, True])
async def test_a_thread_that_is_bound_while_it_is_led_elsewhere_leads_to_the_sub_agent(
    open_home: OpenHome, database_section: DatabaseSection, was_led: bool
) -> None:
    async with a_thread(open_home) as thread:
        if was_led:
            await thread.is_led_elsewhere()
        with barrier_in(database_section) as barrier:
            assert await at_once(barrier, thread.is_led_elsewhere, thread.binds) == [True]
        assert await thread.leads_to() == ("agent:main:api:child", True)


@requirement("spawn:4", "channels:2")
async def test_a_thread_that_is_unbound_while_it_is_led_elsewhere_leads_there(
    open_home: OpenHome, database_section: DatabaseSection
) -> None:
    async with a_thread(open_home) as thread:
        await thread.binds()
        with barrier_in(database_section) as barrier:

            async def lead(barrier: Barrier) -> None:
                await thread.is_led_elsewhere(barrier)

            assert await at_once(barrier, lead, thread.unbinds) == [False]
        assert await thread.leads_to() == ("agent:main:api:other", False)
