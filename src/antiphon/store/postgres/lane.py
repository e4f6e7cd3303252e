"""A *lane* is a few tasks with one connection each, which process lines of units.

Units that name the same session wait in one line and share transactions, so that a hot session costs one lock and
one COMMIT for many messages.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any

import anyio

from antiphon.store.database import Named
from antiphon.store.moments import Moment
from antiphon.store.postgres.link import Link

MAX_BATCH = 64
"""The most units of one session in one transaction."""


@dataclass(slots=True, eq=False)
class LaneJob:
    body: Callable[..., Coroutine[Any, Any, Any]]
    arguments: tuple[Any, ...]
    sessions: tuple[Named, ...]
    future: asyncio.Future[Any]
    moment: Moment
    since: float
    result: Any = None
    error: BaseException | None = None

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


@dataclass(slots=True, eq=False)
class _JobLine:
    """Jobs that wait for one another: the jobs of one session, or a single job."""

    name: Hashable
    jobs: deque[LaneJob] = field(default_factory=deque[LaneJob])


class _ReadyLines:
    """Lines that no task works on, oldest first.

    The task that began to wait last gets the next one: the server knows the statements of its connection already.
    With little to do, most connections are never opened.
    """

    def __init__(self) -> None:
        self._lines: deque[_JobLine] = deque()
        self._waiting: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        return len(self._lines)

    def put(self, line: _JobLine) -> None:
        self._lines.append(line)
        self._wake_one()

    async def get(self) -> _JobLine:
        while not self._lines:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                elif self._lines:
                    self._wake_one()
                raise
        return self._lines.popleft()

    def _wake_one(self) -> None:
        while self._waiting:
            turn = self._waiting.pop()
            if not turn.done():  # else its task was cancelled just now
                turn.set_result(None)
                return


class Lane:
    """Tasks with one connection each, which process lines. Only one task at a time works on a line."""

    def __init__(self, url: str, work: Callable[["Link", list[LaneJob]], Awaitable[None]]) -> None:
        self._url = url
        self._work = work
        self._lines: dict[Hashable, _JobLine] = {}
        self._ready = _ReadyLines()
        self._busy = 0
        self._is_idle = anyio.Event()

    def put(self, job: LaneJob, name: Hashable | None) -> None:
        if name is None:
            self._ready.put(_JobLine(None, deque((job,))))
        elif line := self._lines.get(name):
            line.jobs.append(job)
        else:
            line = self._lines[name] = _JobLine(name, deque((job,)))
            self._ready.put(line)

    async def serve(self) -> None:
        """Processes lines over one connection, until cancelled."""
        link = Link(self._url)
        try:
            while True:
                line = await self._ready.get()
                self._busy += 1
                batch = [line.jobs.popleft() for _ in range(min(MAX_BATCH, len(line.jobs)))]
                try:
                    await self._work(link, batch)
                except BaseException as error:  # the task's root: every waiter gets the error
                    for job in batch:
                        job.error = job.error or error
                    if not isinstance(error, Exception):
                        raise
                finally:
                    for job in batch:
                        job.settle()
                    if line.jobs:
                        self._ready.put(line)
                    elif line.name is not None:
                        del self._lines[line.name]
                    self._busy -= 1
                    if self._is_quiet:
                        self._is_idle.set()
                        self._is_idle = anyio.Event()
                del line, batch
        finally:
            with anyio.CancelScope(shield=True):
                await link.close()

    @property
    def _is_quiet(self) -> bool:
        return self._busy == 0 and not self._ready

    async def wait_idle(self) -> None:
        while not self._is_quiet:
            await self._is_idle.wait()
