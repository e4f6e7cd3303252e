"""What changed in which session, for readers of lists: at most four times a second for each session.

Wakes say which sessions changed. The feed reads what was added to their logs, once for all readers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

import anyio
from msgspec import Struct

from antiphon.clock import Clock
from antiphon.domain.errors import Unavailable
from antiphon.domain.event import Event
from antiphon.domain.ids import SessionRow
from antiphon.feed.follow import ReadLogs, read_each
from antiphon.feed.notifier import Notifier
from antiphon.store.people import NAMES
from antiphon.trouble import Setbacks, Trouble

GAP_SECONDS = 0.25
"""Between two reports about one session."""
TURN_SECONDS = 0.01
"""Between two reports about any, so that what changes together is read together."""
SESSIONS_AT_ONCE = 100
HEADS_AT_ONCE = 5_000
RETRY_SECONDS = 1.0

logger = logging.getLogger(__name__)

ReadHeads = Callable[[SessionRow, int], Awaitable[Mapping[SessionRow, int]]]
"""The last `seq` of so many sessions after that row, in order."""


class Change(Struct, frozen=True):
    """What happened to one session since the last report about it."""

    session: SessionRow
    events: Sequence[Event]
    """What was added to its log; empty if only its row changed, or if it was deleted."""
    is_gone: bool
    """Whether it was deleted."""


class ChangeReader(Protocol):
    """A reader of lists.

    - `take` gets the changes in order. If it raises `Unavailable`, it gets them again.
    - `look_again` is called once rights have changed, or wakes may have been missed: anything may look different.
    """

    async def take(self, changes: Sequence[Change]) -> None: ...

    async def look_again(self) -> None: ...


class Changes:
    """Reports to its readers what changes, in any process. `run` must be running in a task."""

    def __init__(self, notifier: Notifier, read_logs: ReadLogs, read_heads: ReadHeads, clock: Clock) -> None:
        self._notifier = notifier
        self._read_logs = read_logs
        self._read_heads = read_heads
        self._clock = clock
        self._readers: dict[ChangeReader, None] = {}
        self._heads: dict[SessionRow, int] | None = None
        """Up to where each log was reported; None while there are no readers. A session that is not here is new."""
        self._preparing = anyio.Lock()
        self._stop: Callable[[], None] = _nothing
        self._dirty: dict[SessionRow, None] = {}
        self._told_at: dict[SessionRow, float] = {}
        self._is_outdated = False
        self._has_missed = False
        """Whether wakes may have been missed."""
        self._has_news = asyncio.Event()
        self._trouble = Trouble(logger, "Reading changes", action="changes_failed", means="Lists show news late.")
        self._setbacks = Setbacks(
            logger, "List or log", action="change_failed", means="That one shows news late, or not all of them."
        )

    async def add(self, reader: ChangeReader) -> None:
        """Reports to the reader everything that is committed from now on. Raises `Unavailable`."""
        async with self._preparing:
            if self._heads is None:
                await self._prepare()
            self._readers[reader] = None

    def remove(self, reader: ChangeReader) -> None:
        """May be called twice."""
        self._readers.pop(reader, None)
        if not self._readers and not self._preparing.locked():
            self._rest()

    async def _prepare(self) -> None:
        """Listens first and then reads, so that nothing is missed."""
        stops = [self._notifier.subscribe_everywhere(self._note), self._notifier.subscribe(NAMES, self._note_rights)]

        def stop() -> None:
            for each in stops:
                each()

        self._stop = stop
        heads: dict[SessionRow, int] = {}
        above = SessionRow(0)
        try:
            while page := await self._read_heads(above, HEADS_AT_ONCE):
                heads |= page
                above = list(page)[-1]
        except BaseException:
            self._rest()
            raise
        self._heads = heads

    def _rest(self) -> None:
        self._stop()
        self._stop = _nothing
        self._heads = None
        self._dirty.clear()
        self._told_at.clear()

    def _note(self, sessions: Collection[SessionRow] | None) -> None:
        if sessions is None:
            self._is_outdated = self._has_missed = True
        else:
            self._dirty.update(dict.fromkeys(session for session in sessions if session > 0))
        self._has_news.set()

    def _note_rights(self) -> None:
        self._is_outdated = True
        self._has_news.set()

    async def run(self) -> None:
        """Reports, until cancelled."""
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            if self._heads is None:
                await asyncio.sleep(TURN_SECONDS)  # a reader is being prepared for, or there is none
                if self._dirty and self._preparing.locked():
                    self._has_news.set()
                continue
            try:
                await self._look_again()
                await self._report()
            except Exception as error:
                self._trouble.failed(error)
                await asyncio.sleep(RETRY_SECONDS)
                self._has_news.set()
                continue
            self._trouble.worked()
            await asyncio.sleep(TURN_SECONDS)

    async def _look_again(self) -> None:
        if not self._is_outdated:
            return
        self._is_outdated = False
        try:
            if self._has_missed:
                await self._find_missed()
            for reader in tuple(self._readers):
                with self._setbacks.attempt(reader, reader=type(reader).__name__):
                    await reader.look_again()
        except BaseException:
            self._is_outdated = True
            raise

    async def _find_missed(self) -> None:
        """Marks the sessions whose logs have grown unnoticed; of those that are gone, readers learn by looking."""
        self._has_missed = False
        above = SessionRow(0)
        try:
            while page := await self._read_heads(above, HEADS_AT_ONCE):
                if (known := self._heads) is None:
                    return
                self._dirty.update(dict.fromkeys(row for row, seq in page.items() if known.get(row) != seq))
                above = list(page)[-1]
        except BaseException:
            self._has_missed = True
            raise

    async def _report(self) -> None:
        heads = self._heads
        if heads is None or not (due := self._take_due()):
            return
        try:
            cursors = {session: heads.get(session, 0) for session in due}
            slices = await read_each(self._read_logs, cursors, self._setbacks)
        except BaseException:
            self._dirty.update(dict.fromkeys(due))
            raise
        if heads is not self._heads:
            return  # those who asked have left, and the readers of now begin above this
        changes: list[Change] = []
        for session in cursors:
            if session not in slices:
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._note, (session,))
                continue
            slice = slices[session]
            if slice is None:
                changes.append(Change(session, (), is_gone=True))
                continue
            changes.append(Change(session, slice.events, is_gone=False))
            if slice.events:
                heads[session] = slice.events[-1].seq
                if heads[session] < slice.last_seq:
                    self._note((session,))
        for reader in tuple(self._readers):
            await self._tell(reader, changes)

    async def _tell(self, reader: ChangeReader, changes: Sequence[Change]) -> None:
        while reader in self._readers:
            try:
                await reader.take(changes)
            except Unavailable as error:
                self._trouble.failed(error)
                await asyncio.sleep(RETRY_SECONDS)
            except Exception as error:  # of that list: the others get the changes, and it the next ones
                sessions = [change.session for change in changes]
                self._setbacks.failed(reader, error, reader=type(reader).__name__, sessions=sessions)
                return
            else:
                self._setbacks.worked(reader, reader=type(reader).__name__)
                return

    def _take_due(self) -> list[SessionRow]:
        """The sessions to report now. If others have to wait, comes back for them."""
        now = self._clock.monotonic()
        for session in [each for each, at in self._told_at.items() if now - at >= GAP_SECONDS]:
            del self._told_at[session]
        due = [session for session in self._dirty if session not in self._told_at][:SESSIONS_AT_ONCE]
        for session in due:
            del self._dirty[session]
            self._told_at[session] = now
        if self._dirty:
            wait = min(GAP_SECONDS + self._told_at.get(session, now - GAP_SECONDS) - now for session in self._dirty)
            asyncio.get_running_loop().call_later(max(wait, 0), self._has_news.set)
        return due


def _nothing() -> None:
    return
