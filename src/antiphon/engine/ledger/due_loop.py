"""Loops over what is due: tasks, children, checkpoints, deliveries, approved calls. Contract: runs 8.

What is due are rows, so nothing is lost with a process. Any process may find them: the unit of each looks again.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Generic, TypeAlias, TypeVar, TypeVarTuple

import anyio

from antiphon.clock import Clock
from antiphon.trouble import Setbacks, Trouble

LOOK_SECONDS = 30.0
"""How soon is found, at the latest, what other processes scheduled or left, and that a clock was set forward."""

Subscribe: TypeAlias = Callable[[Callable[[], None]], Callable[[], None]]
"""Takes what is called at each wake; returns the function that ends that."""
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class DueLoop(ABC, Generic[T]):
    """Looks after each wake, when the next is due, and from time to time. `T` is noted of each item at work."""

    def __init__(self, subscribe: Subscribe, *, looking: Trouble, setbacks: Setbacks, pause: float) -> None:
        self._subscribe = subscribe
        self._looking = looking
        self._setbacks = setbacks
        self._pause = pause
        """Seconds after a look that failed."""
        self._at_work: dict[str, T] = {}
        self._woken = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_stopped = False

    @abstractmethod
    async def settle_due(self) -> float:
        """Settles or starts what is due; returns the seconds until the next look."""

    def wake(self) -> None:
        """Makes it look at once."""
        self._is_idle.clear()
        self._woken.set()

    async def run(self) -> None:
        """Runs until it is drained or cancelled; a look that fails ends nothing."""
        unsubscribe = self._subscribe(self.wake)
        try:
            async with anyio.create_task_group() as self._tasks:
                while self._at_work or not self._is_stopped:
                    self._woken.clear()
                    seconds = self._pause
                    try:
                        if not self._is_stopped:
                            seconds = await self.settle_due()
                            self._looking.worked()
                    except Exception as error:
                        self._looking.failed(error)
                    if not self._at_work and not self._woken.is_set():
                        self._is_idle.set()
                    with anyio.move_on_after(seconds):
                        await self._woken.wait()
        finally:
            unsubscribe()
            self._is_idle.set()

    async def drain(self, seconds: float) -> None:
        """Begins nothing more, and gives what is at work this long."""
        self._is_stopped = True
        self.wake()
        if self._at_work:
            with anyio.move_on_after(seconds):
                await self._is_idle.wait()

    def _may_begin(self, item: str) -> bool:
        """Whether it is not at work, and has not failed lately."""
        return item not in self._at_work and not self._setbacks.rests(item)

    def _start(self, item: str, noted: T, work: Callable[[*Ts], Awaitable[None]], *arguments: *Ts) -> None:
        """Does the work beside the looks, of which another follows its end."""
        self._at_work[item] = noted
        self._tasks.start_soon(self._do, item, work, arguments)

    async def _do(self, item: str, work: Callable[[*Ts], Awaitable[None]], arguments: tuple[*Ts]) -> None:
        try:
            await work(*arguments)
        finally:
            del self._at_work[item]
            self.wake()


def seconds_until(due_ms: int | None, clock: Clock, shortest: float = 0.0) -> float:
    """At most `LOOK_SECONDS`, also where nothing is due."""
    left = LOOK_SECONDS if due_ms is None else (due_ms - clock.now_ms()) / 1000
    return min(max(left, shortest), LOOK_SECONDS)
