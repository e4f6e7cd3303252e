"""The port for delivering work: "this session has work", at least once."""

import logging
from collections.abc import Iterable
from typing import Protocol

import anyio

from antiphon.domain.ids import SessionRow
from antiphon.store import runs as ledger
from antiphon.store.database import Database
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class Driver(Protocol):
    """Works on the sessions delivered to it; called on the event loop."""

    def take(self, session: SessionRow) -> None:
        """The session has work; returns at once."""
        ...

    async def check_all(self) -> None:
        """Looks at every run that executes here. May raise `Unavailable`."""
        ...

    async def wait_room(self) -> bool:
        """Returns when there is room for one more session, or never will be; False if only for the owner's."""
        ...

    async def wait_guest_room(self) -> None:
        """Returns when there is room for one more session that is not the owner's, or never will be."""
        ...

    async def wait_left(self, session: SessionRow) -> bool:
        """Returns once nobody works on the session here any more; True if all of its work is done."""
        ...


class Dispatch(Protocol):
    """Delivers sessions that have work to a driver.

    - After its commit, a session passed to `Transaction.dispatch` is delivered, at least once.
    - It may be delivered twice, late, and to several processes; the ledger decides which process runs it.
    - After a start, and after the death of a process, every session with unfinished runs is delivered.
    """

    async def run(self, driver: Driver) -> None:
        """Delivers until cancelled, or until it was stopped and all delivered work is finished or handed back."""
        ...

    def stop(self) -> None:
        """Delivers nothing more from now on."""
        ...


class LocalDispatch:
    """Within one process: the database reports each commit, and the worker reads the ledger."""

    def __init__(self) -> None:
        self._database: Database | None = None
        self._driver: Driver | None = None
        self._early: dict[SessionRow, None] = {}
        self._is_stopped = False
        self._reading = Trouble(
            logger, "Looking for work", action="dispatch_failed", means="Runs of the time before the start wait."
        )

    def read_from(self, database: Database) -> None:
        """Sets the database with the unfinished work of an earlier process; call before `run`."""
        self._database = database

    async def run(self, driver: Driver) -> None:
        for session in await self._find_busy():
            driver.take(session)
        self._driver = driver
        early, self._early = self._early, {}
        self.dispatch(early)

    async def _find_busy(self) -> list[SessionRow]:
        """Tries until the ledger can be read: meanwhile the process answers with the reason."""
        assert self._database is not None
        while True:
            try:
                found = await self._database.read(ledger.list_busy_sessions)
            except Exception as error:
                self._reading.failed(error)
                await anyio.sleep(RETRY_SECONDS)
                continue
            self._reading.worked()
            return found

    def stop(self) -> None:
        self._is_stopped = True

    def dispatch(self, sessions: Iterable[SessionRow]) -> None:
        if self._is_stopped:
            return
        if self._driver is None:
            self._early.update(dict.fromkeys(sessions))
            return
        for session in sessions:
            self._driver.take(session)
