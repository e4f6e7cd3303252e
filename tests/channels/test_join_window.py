"""Join links: each lets in one person for one purpose, also where several are made and followed at once."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from antiphon.channels.join_window import JoinWindow
from antiphon.channels.kind import Admit
from antiphon.domain.inbound import Sender
from antiphon.domain.session import DeliveryContext
from tests.claims import requirement
from tests.engine.stage import ManualClock
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


class Doors:
    """A platform whose news of who joined come late, and whose requests take a while."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.window = JoinWindow(self.clock, self.withdraw, self.settle)
        self.links: list[str] = []
        self.valid: set[str] = set()
        self.news: list[str] = []
        """Of those who joined and of whom the channel does not know yet."""
        self.admitted: list[tuple[str, str]] = []
        self.while_making: Callable[[], Awaitable[None]] | None = None

    async def withdraw(self) -> None:
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        self.valid.clear()

    async def settle(self) -> None:
        while self.news:
            await self.hear(self.news.pop(0))

    async def make(self) -> str:
        link = f"link {len(self.links) + 1}"
        self.links.append(link)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        if self.while_making is not None:
            await self.while_making()
        self.valid.add(link)
        return link

    async def invite(self, purpose: str) -> str:
        async def admit(sender: Sender, place: DeliveryContext) -> None:
            self.admitted.append((sender.id, purpose))

        return (await self.window.open(admit, self.make)).link

    def join(self, who: str, link: str) -> bool:
        if link in self.valid:
            self.news.append(who)
        return link in self.valid

    async def hear(self, who: str) -> None:
        admit: Admit | None = await self.window.take()
        if admit is not None:
            await admit(Sender(id=who, name=who), DeliveryContext())


@asynccontextmanager
async def within_time() -> AsyncGenerator[Doors]:
    with anyio.fail_after(SECONDS):
        yield Doors()


@requirement("access:3")
async def test_who_followed_a_link_before_the_next_was_made_comes_by_its_window() -> None:
    async with within_time() as doors:
        first = await doors.invite("guest")
        assert doors.join("ann", first)
        second = await doors.invite("owner")
        assert doors.admitted == [("ann", "guest")] and doors.valid == {second}
        assert doors.join("ben", second)
        await doors.settle()
        assert doors.admitted[1:] == [("ben", "owner")] and doors.valid == set()


@requirement("access:3")
async def test_who_joins_while_a_link_is_made_comes_by_no_window_and_takes_no_link_away() -> None:
    async with within_time() as doors:
        await doors.invite("guest")

        async def late() -> None:
            await doors.hear("mallory")

        doors.while_making = late
        second = await doors.invite("owner")
        assert doors.admitted == [] and doors.valid == {second}


@requirement("access:3")
async def test_of_links_that_are_made_at_once_the_last_works_alone() -> None:
    async with within_time() as doors:
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(doors.invite, str(number))
        assert doors.valid == {doors.links[-1]}
        doors.join("ann", doors.links[-1])
        await doors.settle()
        assert doors.admitted == [("ann", "3")]


@requirement("access:3")
async def test_a_link_that_is_made_while_somebody_comes_by_the_last_one_works() -> None:
    async with within_time() as doors:
        await doors.invite("guest")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(doors.hear, "ann")
            tasks.start_soon(doors.invite, "owner")
        assert doors.admitted == [("ann", "guest")] and doors.valid == {doors.links[-1]}
        doors.join("ben", doors.links[-1])
        await doors.settle()
        assert doors.admitted[1:] == [("ben", "owner")]
