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
from antiphon.store.postgres.link import Link

MAX_BATCH = 64
"""The most units of one session in one transaction."""


@dataclass(slots=True, eq=False)
class LaneJob:
    body: Callable[..., Coroutine[Any, Any, Any]]
    arguments: tuple[Any, ...]
    sessions: tuple[Named, ...]
    future: asyncio.Future[Any]
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


class Lane:
    """Tasks with one connection each, which process lines. Only one task at a time works on a line."""

    def __init__(self, url: str, work: Callable[["Link", list[LaneJob]], Awaitable[None]]) -> None:
        self._url = url
        self._work = work
        self._lines: dict[Hashable, _JobLine] = {}
        self._ready: asyncio.Queue[_JobLine] = asyncio.Queue()
        self._busy = 0
        self._is_idle = anyio.Event()

    def put(self, job: LaneJob, name: Hashable | None) -> None:
        if name is None:
            self._ready.put_nowait(_JobLine(None, deque((job,))))
        elif line := self._lines.get(name):
            line.jobs.append(job)
        else:
            line = self._lines[name] = _JobLine(name, deque((job,)))
            self._ready.put_nowait(line)

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
                        self._ready.put_nowait(line)
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
        return self._busy == 0 and self._ready.empty()

    async def wait_idle(self) -> None:
        while not self._is_quiet:
            await self._is_idle.wait()
