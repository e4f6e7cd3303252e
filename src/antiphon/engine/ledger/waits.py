"""Waits for a run's end by reading the ledger, also after a restart or in another process. Contract: runs 3."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import anyio

from antiphon.domain.errors import NotFound, Unavailable
from antiphon.domain.ids import RunId, SessionRow
from antiphon.domain.run import Run
from antiphon.feed.notifier import Notifier
from antiphon.store import runs as ledger
from antiphon.store.database import Database

STOPPED = "Gateway is stopping. The run that you wait for continues; ask again with the same id or key."
LONGEST_WAIT = timedelta(minutes=10)
"""The longest time that a tool waits for a run."""
POLL_SECONDS = 1.0
"""The most that a lost wake delays a wait."""


class Waits:
    def __init__(self, database: Database, notifier: Notifier) -> None:
        self._database = database
        self.notifier = notifier
        self._waiting: set[asyncio.Event] = set()
        self._is_closed = False

    @property
    def count(self) -> int:
        """How many waits are under way."""
        return len(self._waiting)

    def close(self) -> None:
        """Ends every wait, now and later, with `Unavailable` (`stopped`), so that a server can stop."""
        self._is_closed = True
        for woken in self._waiting:
            woken.set()

    async def wait(self, run_id: RunId, timeout: timedelta, session: SessionRow | None = None) -> Run | None:
        """The run once its work is over; None on time-out. Passing its session saves a read.

        A run that yielded is over when its continuation is, and has the continuation's end. Raises `NotFound` if the
        run does not exist, or is deleted with its session meanwhile; `Unavailable` after `close`.
        """
        if session is None:
            run = await self._find(run_id)
            if run.is_over:
                return run
            session = run.session
        with self._woken([ledger.ends_of(session)]) as woken:
            run = await self._find(run_id)  # however short the time is
            with anyio.move_on_after(timeout.total_seconds()):
                while not run.is_over:
                    if self._is_closed:
                        raise Unavailable(STOPPED, code="stopped")
                    with anyio.move_on_after(POLL_SECONDS):
                        await woken.wait()
                    woken.clear()
                    run = await self._find(run_id)
                return run
        return None

    async def wait_several(
        self, run_ids: Sequence[RunId], sessions: Collection[SessionRow], timeout: timedelta, *, for_all: bool
    ) -> None:
        """Returns once one of the runs of those sessions is over, or all; or on time-out. Raises like `wait`."""
        unfinished = list(run_ids)
        with self._woken([*map(ledger.ends_of, sessions)]) as woken, anyio.move_on_after(timeout.total_seconds()):
            while True:
                ends = await self._database.read(ledger.find_ends, unfinished)
                left = [run_id for run_id in unfinished if run_id in ends and not ends[run_id].is_over]
                if not left or (len(left) < len(unfinished) and not for_all):
                    return
                if self._is_closed:
                    raise Unavailable(STOPPED, code="stopped")
                unfinished = left
                with anyio.move_on_after(POLL_SECONDS):
                    await woken.wait()
                woken.clear()

    async def wait_until(self, session: SessionRow, timeout: timedelta, look: Callable[[], Awaitable[bool]]) -> None:
        """Returns once `look`, which is asked after each event of the session, is true; or on time-out.

        Raises `Unavailable` after `close`.
        """
        with self._woken([session]) as woken, anyio.move_on_after(timeout.total_seconds()):
            while not await look():
                if self._is_closed:
                    raise Unavailable(STOPPED, code="stopped")
                with anyio.move_on_after(POLL_SECONDS):
                    await woken.wait()
                woken.clear()

    @contextmanager
    def _woken(self, sessions: Collection[SessionRow]) -> Generator[asyncio.Event]:
        """Set by wakes of these rows, and when the waits are closed."""
        woken = asyncio.Event()
        unsubscribers = [self.notifier.subscribe(session, woken.set) for session in set(sessions)]
        self._waiting.add(woken)
        try:
            yield woken
        finally:
            self._waiting.discard(woken)
            for unsubscribe in unsubscribers:
                unsubscribe()

    async def _find(self, run_id: RunId) -> Run:
        run = await self._database.read(ledger.find, run_id)
        if run is None:
            raise NotFound(f"Run not found: {run_id!r}")
        if run.continued_by is None:
            return run
        return (await self._database.read(ledger.find_ends, [run_id])).get(run_id, run)
