"""The loop over what is due: woken, paused, drained. `tests/test_loops.py` has what an error in one item does."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import anyio.lowlevel
import pytest

from antiphon.engine.ledger.due_loop import LOOK_SECONDS, DueLoop, seconds_until
from antiphon.trouble import Setbacks, Trouble
from tests.claims import requirement
from tests.engine.stage import ManualClock
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

logger = logging.getLogger("antiphon.test")
NEVER = 3_600.0


class Gate(DueLoop[None]):
    """Does what the test says at each look, and holds its work until it is let go."""

    def __init__(self, *looks: Callable[["Gate"], Awaitable[None]]) -> None:
        super().__init__(
            self._listen,
            looking=Trouble(logger, "Looking", action="looking_failed", means="It waits."),
            setbacks=Setbacks(logger, "Item", action="item_failed", means="It waits."),
            pause=0.0,
        )
        self._looks = list(looks)
        self.looked, self.ended = 0, list[str]()
        self.is_listened_to = False
        self.let_go = anyio.Event()

    def _listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        self.is_listened_to = True

        def end() -> None:
            self.is_listened_to = False

        return end

    async def settle_due(self) -> float:
        self.looked += 1
        if self._looks:
            await self._looks.pop(0)(self)
        return NEVER

    def begin(self, *items: str) -> None:
        for item in items:
            if self._may_begin(item):
                self._start(item, None, self._work, item)

    async def _work(self, item: str) -> None:
        await self.let_go.wait()
        self.ended.append(item)

    async def until_looked(self, times: int) -> None:
        with anyio.fail_after(SECONDS):
            while self.looked < times:
                await anyio.lowlevel.checkpoint()

    async def until_idle(self) -> None:
        with anyio.fail_after(SECONDS):
            await self._is_idle.wait()


@asynccontextmanager
async def running(gate: Gate) -> AsyncGenerator[Gate]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gate.run)
        yield gate
        tasks.cancel_scope.cancel()
    assert not gate.is_listened_to


async def is_woken(gate: Gate) -> None:
    """A commit comes while it looks."""
    gate.wake()


async def finds(gate: Gate) -> None:
    gate.begin("one", "two", "one")


async def fails(gate: Gate) -> None:
    raise LookupError


@requirement("runs:8")
async def test_a_wake_within_a_look_is_another_look() -> None:
    async with running(Gate(is_woken)) as gate:
        await gate.until_looked(2)
        await gate.until_idle()
        assert gate.looked == 2
        gate.wake()
        await gate.until_looked(3)


@requirement("runs:8")
async def test_each_item_is_begun_once_and_its_end_is_followed_by_a_look() -> None:
    async with running(Gate(finds, finds)) as gate:
        await gate.until_looked(1)
        gate.wake()
        await gate.until_looked(2)
        gate.let_go.set()
        await gate.until_idle()
        assert gate.ended == ["one", "two"] and gate.looked >= 3


@requirement("runs:8")
async def test_a_look_that_fails_is_followed_by_another() -> None:
    async with running(Gate(fails, fails)) as gate:
        await gate.until_looked(3)
        await gate.until_idle()


@requirement("runs:8")
async def test_a_drained_loop_begins_nothing_more_and_ends_once_its_work_has() -> None:
    async with running(Gate(finds, finds)) as gate:
        await gate.until_looked(1)
        with anyio.fail_after(SECONDS):
            await gate.drain(0)
            assert gate.ended == []
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(gate.drain, NEVER)
                await anyio.lowlevel.checkpoint()
                gate.let_go.set()
            assert gate.ended == ["one", "two"] and gate.looked == 1
            while gate.is_listened_to:
                await anyio.lowlevel.checkpoint()
            await gate.drain(NEVER)  # nothing is left to wait for


@requirement("runs:8")
async def test_a_time_far_ahead_is_looked_at_again_before_it_comes() -> None:
    """The clock may be set forward, and another process may schedule something."""
    clock = ManualClock()
    now_ms = clock.now_ms()
    assert seconds_until(None, clock) == seconds_until(now_ms + 10**9, clock) == LOOK_SECONDS
    assert seconds_until(now_ms + 2_000, clock) == 2.0
    clock.pass_time(timedelta(days=-1))
    assert seconds_until(now_ms, clock) == LOOK_SECONDS
    clock.pass_time(timedelta(days=2))
    assert (seconds_until(now_ms, clock), seconds_until(now_ms, clock, shortest=1.0)) == (0.0, 1.0)
