"""A *lane* is a few tasks with one connection each, which process lines of units.

Units that name the same session first wait in one line and share transactions, so that a hot session costs one lock and
one COMMIT for many messages, and a requester one for the ends of many children.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from antiphon.domain.errors import Unavailable
from antiphon.store.database import Named
from antiphon.store.moments import Moment
from antiphon.store.postgres.link import Link

MAX_BATCH = 64
"""The most units of one session in one transaction."""
MAX_WIDENED = 30
"""How often a unit finds that it needs more sessions. A tree of sessions is not so deep: more often, what it reads
changes each time."""


@dataclass(slots=True, eq=False)
class LaneJob:
    body: Callable[..., Coroutine[Any, Any, Any]]
    arguments: tuple[Any, ...]
    sessions: tuple[Named, ...]
    future: asyncio.Future[Any]
    moment: Moment
    since: float
    widened: int = 0
    """How often the unit found on its way that it needs more sessions; it shares no transaction then."""
    lacking: Unavailable | None = None
    """What did not come in the job's time, such as a lock: those behind it that have waited as long lack it too."""
    result: Any = None
    error: BaseException | None = None

    def widen(self, sessions: Sequence[Named]) -> None:
        """Adds sessions that the unit turned out to need. Raises `Unavailable` if there is no end to it."""
        if self.widened == MAX_WIDENED:
            raise Unavailable("Store is busy: what is to be changed changes meanwhile. Try again.", code="store_busy")
        self.sessions = (*self.sessions, *sessions)
        self.widened += 1

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


@dataclass(slots=True, eq=False)
class _JobLine:
    """Jobs that wait for one another: those that name the same session first, or a single job."""

    name: Hashable
    jobs: deque[LaneJob] = field(default_factory=deque[LaneJob])

    def take(self) -> list[LaneJob]:
        """The next jobs that may share a transaction."""
        batch = [self.jobs.popleft()]
        while self.jobs and len(batch) < MAX_BATCH and not (batch[0].widened or self.jobs[0].widened):
            batch.append(self.jobs.popleft())
        return batch

    def give_up(self, lacking: Unavailable, since: float) -> None:
        """Answers all that have waited since then: each would only wait once more for the same."""
        while self.jobs and self.jobs[0].since <= since:
            job = self.jobs.popleft()
            job.error = lacking
            job.settle()


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
    """Tasks with one connection each, which process lines. Only one task at a time works on a line.

    What the work takes out of the end of its batch goes back to the front of the line.
    """

    def __init__(self, url: str, work: Callable[["Link", list[LaneJob]], Awaitable[None]], wait_seconds: float) -> None:
        self._url = url
        self._work = work
        self._wait_seconds = wait_seconds
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
                taken = line.take()
                batch = taken.copy()
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
                    line.jobs.extendleft(reversed(taken[len(batch) :]))
                    if batch[0].lacking is not None:
                        line.give_up(batch[0].lacking, time.monotonic() - self._wait_seconds)
                    if line.jobs:
                        self._ready.put(line)
                    elif line.name is not None:
                        del self._lines[line.name]
                    self._busy -= 1
                    if self._is_quiet:
                        self._is_idle.set()
                        self._is_idle = anyio.Event()
                del line, batch, taken
        finally:
            with anyio.CancelScope(shield=True):
                await link.close()

    @property
    def _is_quiet(self) -> bool:
        return self._busy == 0 and not self._ready

    async def wait_idle(self) -> None:
        while not self._is_quiet:
            await self._is_idle.wait()
