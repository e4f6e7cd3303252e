"""Live reading of logs: one hub, which reads each followed session once for all of its readers.

A reader holds only a cursor. The readers of a session share a bounded tail of new events. A reader that fell behind
reads the log instead, so a slow reader costs nothing and loses nothing.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Protocol
from weakref import WeakSet

from msgspec import Struct

from antiphon.clock import Clock
from antiphon.domain.classification import EVERYTHING, Classification, join_all
from antiphon.domain.delay import Delay, DelayOver, Delta, LivePiece
from antiphon.domain.errors import Unavailable
from antiphon.domain.event import Event
from antiphon.domain.ids import RunId, SessionRow
from antiphon.feed.notifier import Notifier
from antiphon.metrics import DELTAS_DROPPED, READERS_CUT
from antiphon.policy.flow import is_public
from antiphon.policy.reach import Grant
from antiphon.policy.shown import is_shown
from antiphon.store.people import NAMES
from antiphon.trouble import Setbacks, Trouble, is_of_all

TAIL_EVENTS = 512
TAIL_BYTES = 1024 * 1024
PAGE_EVENTS = 500
FRAME_BYTES = 256 * 1024
OUTLET_BYTES = 64 * 1024
"""Larger news goes through the reader's task, which sends it in pieces that a slow client does not pile up."""
KEEP_ALIVE_SECONDS = 15.0
STALL_SECONDS = 30.0
MAX_PENDING_LENGTH = 64 * 1024
RETRY_SECONDS = 1.0
END_SECONDS = 0.3
"""For a frame that is being sent to a reader that has to end."""
WAKES_AT_ONCE = 100
"""Readers that continue in one turn of the event loop, so that a crowd delays nobody else."""

logger = logging.getLogger(__name__)

Frame = bytes


class LogSlice(Struct, frozen=True):
    """The result of reading one session's log."""

    first_seq: int
    """The lowest `seq` still in the log; a cursor below `first_seq - 1` has lost events."""
    last_seq: int
    events: tuple[Event, ...]
    """Above the cursor, ascending; only the first ones if there are many or large ones."""
    size: int
    """The stored size of the events in bytes."""


ReadLogs = Callable[[Mapping[SessionRow, int]], Awaitable[Mapping[SessionRow, LogSlice]]]
"""Reads several sessions, each after a cursor. The answer leaves out deleted sessions."""


async def read_each(
    read_logs: ReadLogs, cursors: Mapping[SessionRow, int], setbacks: Setbacks
) -> Mapping[SessionRow, LogSlice | None]:
    """The slices, None for a deleted session; leaves out sessions whose log cannot be read now.

    All are read at once; if that fails, each alone. Raises `Unavailable` that concerns all of them.
    """
    asked = {session: cursor for session, cursor in cursors.items() if not setbacks.rests(session)}
    if not asked:
        return {}
    try:
        found = await read_logs(asked)
    except Exception as error:
        if is_of_all(error):
            raise
    else:
        return {session: found.get(session) for session in asked}
    slices: dict[SessionRow, LogSlice | None] = {}
    for session, cursor in asked.items():
        with setbacks.attempt(session, session=session):
            slices[session] = (await read_logs({session: cursor})).get(session)
    return slices


DecideAnew = Callable[[], Awaitable[Grant | None]]
"""The grant with which a reader may go on; None if it may not. Raises `Unavailable`."""


class HeldDeltas:
    """Deltas that came before the reader for whom they are held. Dropping this ends the holding."""

    __slots__ = ("__weakref__", "deltas", "length", "session")

    def __init__(self, session: SessionRow) -> None:
        self.session = session
        self.deltas: list[Delta] = []
        self.length = 0

    def add(self, delta: Delta) -> None:
        if delta.piece is None:
            self.deltas.clear()
            self.length = 0
        if self.length < MAX_PENDING_LENGTH:
            self.deltas.append(delta)
            self.length += _length(delta.piece)
        else:
            DELTAS_DROPPED.add(_length(delta.piece))

    def take(self) -> list[Delta]:
        deltas, self.deltas = self.deltas, []
        return deltas


class StreamWatch(Protocol):
    """Is told what a follower was shown."""

    def show(self, made_of: Classification) -> None:
        """Something above PUBLIC is about to be sent, the first such."""
        ...

    def end(self) -> None:
        """The follower leaves, after something above PUBLIC was shown."""
        ...


class Permit(Struct, frozen=True):
    """What a follower may read, and the function that decides it again."""

    grant: Grant
    decide_anew: DecideAnew | None = None
    """Asked once rights have changed, before anything more is sent; None for a follower whose rights cannot change."""
    decided_at: int | None = None
    """How often rights had changed before the grant was decided; None if that was just now."""
    held: HeldDeltas | None = None
    """The deltas that came before it was decided: what the follower gets first."""
    watch: StreamWatch | None = None
    """Of people, whose reads are recorded."""


def _without_delays(run_id: RunId, delay: Delay | DelayOver) -> Frame:
    return b""


def _without_hidden(event: Event) -> Frame:
    return b""


class Outlet(Protocol):
    """A connection that takes frames without waiting."""

    @property
    def is_writable(self) -> bool: ...

    def write(self, frames: Frame, /) -> None: ...


class View(Struct, frozen=True, eq=False):
    """How one kind of reader sees the log. Each event is encoded once for all of them."""

    encode: Callable[[Event], Frame]
    """Returns empty bytes for events that such readers do not see."""
    encode_delta: Callable[[RunId, str | None], Frame]
    encode_reset: Callable[[str], Frame]
    keep_alive: Frame
    """Sent to quiet readers; empty if their transport keeps itself alive."""
    encode_delay: Callable[[RunId, Delay | DelayOver], Frame] = _without_delays
    encode_hidden: Callable[[Event], Frame] = _without_hidden
    """What readers get instead of an event that does not flow to their clearance. It contains nothing of the event."""


@dataclass(slots=True)
class _Batch:
    """Events from one read, with their encoding for each view."""

    events: tuple[Event, ...]
    size: int
    frames: dict[View, Frame] = field(default_factory=lambda: dict[View, Frame]())
    below: dict[tuple[View, Classification], Frame] = field(
        default_factory=lambda: dict[tuple[View, Classification], Frame]()
    )
    """For readers to whom not all of the events flow."""
    _made_of: Classification | None = None

    def frame(self, view: View, clearance: Classification) -> Frame:
        if clearance is not EVERYTHING and not is_shown(self.made_of, clearance):
            frame = self.below.get((view, clearance))
            if frame is None:
                frame = self.below[view, clearance] = b"".join(_encoded(view, clearance, self.events))
            return frame
        frame = self.frames.get(view)
        if frame is None:
            frame = self.frames[view] = b"".join(map(view.encode, self.events))
        return frame

    def frame_between(self, view: View, clearance: Classification, cursor: int, limit: float) -> Frame:
        """The encoded events above the cursor, up to the limit."""
        if cursor < self.events[0].seq and self.events[-1].seq <= limit:
            return self.frame(view, clearance)
        wanted = (event for event in self.events if cursor < event.seq <= limit)
        return b"".join(_encoded(view, clearance, wanted))

    @property
    def made_of(self) -> Classification:
        """The join of the events."""
        if self._made_of is None:
            self._made_of = join_all(event.classification for event in self.events)
        return self._made_of


def _encoded(view: View, clearance: Classification, events: Iterable[Event]) -> Iterator[Frame]:
    """Each event as a reader with that clearance sees it. Contract: flow 3."""
    for event in events:
        yield view.encode(event) if is_shown(event.classification, clearance) else view.encode_hidden(event)


class _Feed:
    """One followed session: its readers and their shared tail."""

    __slots__ = ("batches", "head", "readers", "session", "size", "start", "unsubscribe")

    def __init__(self, session: SessionRow, head: int) -> None:
        self.session = session
        self.start = head
        """The batches hold everything above this."""
        self.head = head
        self.batches: deque[_Batch] = deque()
        self.size = 0
        self.readers: set[Reader] = set()
        self.unsubscribe: Callable[[], None] = lambda: None

    def extend(self, slice: LogSlice) -> None:
        if slice.first_seq > self.head + 1:
            self.batches.clear()
            self.size = 0
            self.start = self.head = slice.first_seq - 1
        if slice.events:
            self.batches.append(_Batch(slice.events, slice.size))
            self.size += slice.size
            self.head = slice.events[-1].seq
        while len(self.batches) > 1 and (self.head - self.start > TAIL_EVENTS or self.size > TAIL_BYTES):
            oldest = self.batches.popleft()
            self.size -= oldest.size
            self.start = oldest.events[-1].seq


class LogLost(Exception):
    """The log no longer holds the events after the cursor: the reader has to start again."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """`deleted` or `pruned`."""


class HubClosed(Exception):
    """The process is stopping, so following ends."""


class ReaderEnded(Exception):
    """The reader may not continue."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Reader:
    """One follower. `next` returns the next frames; only one task at a time may call it."""

    __slots__ = (
        "_decide_anew",
        "_deltas",
        "_feed",
        "_hub",
        "_waiter",
        "_watch",
        "_watched",
        "clearance",
        "cursor",
        "decided_at",
        "ending",
        "last_frame_at",
        "on_stall",
        "outlet",
        "pending_length",
        "sending_since",
        "view",
    )

    def __init__(
        self,
        hub: "Hub",
        feed: _Feed,
        cursor: int,
        view: View,
        *,
        permit: Permit,
        on_stall: Callable[[], None],
    ) -> None:
        self._hub = hub
        self._feed = feed
        self._decide_anew = permit.decide_anew
        self._watch = permit.watch
        """None also once it was told."""
        self._watched: StreamWatch | None = None
        """Once it was told of something, who is told of the end."""
        self.decided_at = hub.rights_changed if permit.decided_at is None else permit.decided_at
        """How often rights had changed when it was decided what it may read."""
        self._waiter: asyncio.Future[None] | None = None
        self._deltas: deque[Delta] = deque()
        self.clearance = permit.grant.clearance
        """What it may read: all that is sent flows to it. Contract: flow 3."""
        self.pending_length = 0
        """How many characters of deltas wait to be sent."""
        self.cursor = cursor
        self.ending: Exception | None = None
        """The error that `next` raises from now on."""
        self.view = view
        self.outlet: Outlet | None = None
        """Takes what is new while a task waits in `next`, so that the task need not run for each frame."""
        self.on_stall = on_stall
        self.last_frame_at = hub.clock.monotonic()
        self.sending_since: float | None = None
        """When sending of the current frame began; the hub drops a reader that takes too long."""

    @property
    def session(self) -> SessionRow:
        return self._feed.session

    async def next(self) -> Frame:
        """The next bytes to send, never empty. Raises `LogLost`, `HubClosed`, `ReaderEnded`."""
        while True:
            if self.ending is not None:
                raise self.ending
            try:
                frame = await self._look()
            except Unavailable as error:
                self._hub.reading.failed(error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if frame:
                self.last_frame_at = self._hub.clock.monotonic()
                return frame

    async def _look(self) -> Frame:
        """What comes next; empty bytes if there may be more. Raises `Unavailable` and may then be called again."""
        if self._is_outdated:
            await self._decide()
            return b""
        if self._has_delta:
            return b"".join(self._take_deltas())
        return await (self._advance() if self.cursor < self._feed.head else self._wait())

    @property
    def _has_delta(self) -> bool:
        """Whether a delta is due: the events that it follows have been sent."""
        return bool(self._deltas) and self._deltas[0].after <= self.cursor

    @property
    def _is_outdated(self) -> bool:
        """Whether the rights of somebody have changed since it was decided what it may read."""
        return self.decided_at != self._hub.rights_changed and self._decide_anew is not None

    async def _decide(self) -> None:
        """Decides anew what it may read, or ends it."""
        assert self._decide_anew is not None
        decided_at = self._hub.rights_changed
        grant = await self._decide_anew()
        self.decided_at = decided_at
        self._deltas.clear()  # it could read them when they came
        self.pending_length = 0
        if grant is None:
            self.ending = ReaderEnded("revoked")
        else:
            self.clearance = grant.clearance

    async def _advance(self) -> Frame:
        feed = self._feed
        if self.cursor >= feed.start:
            return self._advance_in_tail()
        limit = self._deltas[0].after if self._deltas else inf
        slice = (await self._hub.read_logs({feed.session: self.cursor})).get(feed.session)
        if slice is None:
            raise LogLost("deleted")
        if slice.first_seq > self.cursor + 1:
            raise LogLost("pruned")
        if self._is_outdated or self.ending is not None:
            return b""
        self.cursor = int(min(slice.events[-1].seq if slice.events else slice.last_seq, limit))
        shown = [event for event in slice.events if event.seq <= self.cursor]
        if self._watch is not None:
            self._show(shown)
        return b"".join(_encoded(self.view, self.clearance, shown))

    def _advance_in_tail(self) -> Frame:
        newest = self._feed.batches[-1]
        if self._watch is not None:
            for batch in self._feed.batches:
                if batch.events[-1].seq > self.cursor and not is_public(batch.made_of):
                    self._show([event for event in batch.events if event.seq > self.cursor])
        if not self._deltas and self.cursor == newest.events[0].seq - 1:
            self.cursor, frame = newest.events[-1].seq, newest.frame(self.view, self.clearance)
            return frame
        limit = self._deltas[0].after if self._deltas else inf
        frames: list[Frame] = []
        size = 0
        for batch in self._feed.batches:
            if size >= FRAME_BYTES or self.cursor >= limit:
                break
            if batch.events[-1].seq > self.cursor:
                frames.append(batch.frame_between(self.view, self.clearance, self.cursor, limit))
                size += batch.size
                self.cursor = int(min(batch.events[-1].seq, limit))
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def _show(self, events: Sequence[Event]) -> None:
        """Tells of the first that is above PUBLIC and that it may read."""
        for event in events:
            made_of = event.classification
            if self._watch is not None and not is_public(made_of) and is_shown(made_of, self.clearance):
                self._watched, self._watch = self._watch, None
                self._watched.show(made_of)

    def leave(self) -> None:
        """It follows no more."""
        if self._watched is not None:
            self._watched.end()

    async def _wait(self) -> Frame:
        self._waiter = self._hub.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._is_due():
            return self.view.keep_alive
        return b""

    def _is_due(self) -> bool:
        return self._hub.clock.monotonic() - self.last_frame_at >= KEEP_ALIVE_SECONDS

    def wake(self) -> None:
        """Something may be new: the outlet takes it, or `next` returns it."""
        if self._waiter is None or self._waiter.done():
            return
        try:
            is_written = self.outlet is not None and self._write_all(self.outlet)
        except Exception as error:  # what fails here fails for this reader alone
            self._waiter.set_exception(error)
            return
        if not is_written:
            self._return_to_task()

    def _return_to_task(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _write_all(self, outlet: Outlet) -> bool:
        """Writes all that is new; False if there is more, or if it first needs a decision or the log."""
        feed = self._feed
        if self.ending is not None or self._is_outdated or self.cursor < feed.start:
            return False
        while self._has_delta or self.cursor < feed.head:
            if not outlet.is_writable:
                return False
            if self.cursor < feed.head and feed.batches[-1].size > OUTLET_BYTES:
                return False
            frame = b"".join(self._take_deltas()) if self._has_delta else self._advance_in_tail()
            if frame:
                outlet.write(frame)
                self.last_frame_at = self._hub.clock.monotonic()
        return True

    def add_delta(self, delta: Delta) -> None:
        """Places the delta after its event and before the following events; wakes nobody."""
        if not is_shown(delta.made_of, self.clearance):
            return
        if delta.piece is None:
            self._deltas.clear()
            self.pending_length = 0
        if self.pending_length < MAX_PENDING_LENGTH:
            self._deltas.append(delta)
            self.pending_length += _length(delta.piece)
        else:
            DELTAS_DROPPED.add(_length(delta.piece))

    def _take_deltas(self) -> Iterator[Frame]:
        while self._deltas and self._deltas[0].after <= self.cursor:
            delta = self._deltas.popleft()
            self.pending_length -= _length(delta.piece)
            if isinstance(delta.piece, Delay | DelayOver):
                yield self.view.encode_delay(delta.run, delta.piece)
            else:
                yield self.view.encode_delta(delta.run, delta.piece)

    def close(self) -> None:
        """Ends `next` with `HubClosed`, or stops the frame that is being sent."""
        self.ending = HubClosed()
        self._stop_sending()

    def end(self, reason: str) -> None:
        """Ends `next` with `ReaderEnded`; a frame that is being sent gets a moment to finish."""
        self.ending = ReaderEnded(reason)
        if self.sending_since is None:
            self.wake()
        else:
            self._hub.loop.call_later(END_SECONDS, self._stop_sending)

    def _stop_sending(self) -> None:
        if self.sending_since is not None:
            self.on_stall()
        else:
            self.wake()

    def sweep(self, now: float) -> None:
        if self.sending_since is not None and now - self.sending_since > STALL_SECONDS:
            READERS_CUT.add()
            self.on_stall()
        elif self.view.keep_alive and now - self.last_frame_at >= KEEP_ALIVE_SECONDS:
            self._return_to_task()


def _length(piece: LivePiece) -> int:
    return len(piece) if isinstance(piece, str) else len(piece.text) if isinstance(piece, Delay) else 0


class Hub:
    """Follows sessions for any number of readers. `run` must be running in a task."""

    def __init__(self, notifier: Notifier, read_logs: ReadLogs, clock: Clock) -> None:
        self._notifier = notifier
        self._feeds: dict[SessionRow, _Feed] = {}
        self._held: WeakSet[HeldDeltas] = WeakSet()
        self._dirty: set[SessionRow] = set()
        self._is_dirty = asyncio.Event()
        self.read_logs = read_logs
        self.clock = clock
        self.is_closed = False
        self.rights_changed = 0
        """How often the rights of somebody have changed; readers decide anew before they send more."""
        self._stop_watching = notifier.subscribe(NAMES, self._note_rights)
        self.reading = Trouble(logger, "Reading logs", action="follow_failed", means="Followers see news late.")
        self.setbacks = Setbacks(
            logger, "Log", action="log_unread", means="Followers of that session see news late; others see them."
        )
        self.loop = asyncio.get_running_loop()

    @asynccontextmanager
    async def follow(
        self, permit: Permit, after: int, view: View, *, on_stall: Callable[[], None], outlet: Outlet | None = None
    ) -> AsyncGenerator[Reader]:
        """A reader of every event above `after` that flows to the permit's clearance, exactly once.

        Subscribes before it reads. `on_stall` is called when sending a frame takes longer than 30 s. While a task
        waits in `next`, an `outlet` gets what is new. Contract: gateway 1, 5, flow 3.
        """
        session = permit.grant.session
        feed = self._feeds.get(session)
        if feed is None:
            feed = self._feeds[session] = _Feed(session, after)
            feed.unsubscribe = self._notifier.subscribe(session, lambda: self._mark(session))
        reader = Reader(self, feed, after, view, permit=permit, on_stall=on_stall)
        reader.outlet = outlet
        if self.is_closed:
            reader.ending = HubClosed()
        held = permit.held
        if held is not None and held.session == session:
            self._held.discard(held)
            for delta in held.take():
                reader.add_delta(delta)
        feed.readers.add(reader)
        self._mark(session)
        try:
            yield reader
        finally:
            reader.leave()
            feed.readers.discard(reader)
            if not feed.readers and self._feeds.get(session) is feed:
                feed.unsubscribe()
                del self._feeds[session]

    def hold(self, session: SessionRow) -> HeldDeltas:
        """Holds the session's deltas from now on, for one who still has to find out whether they may read it."""
        held = HeldDeltas(session)
        self._held.add(held)
        return held

    def publish_delta(self, session: SessionRow, delta: Delta) -> None:
        """Shows a delta to the present readers to whom it flows. Deltas have no number and may be lost."""
        if self._held:  # mostly empty, and then asking is cheaper than going through it
            for held in self._held:
                if held.session == session:
                    held.add(delta)
        if feed := self._feeds.get(session):
            for reader in feed.readers:
                reader.add_delta(delta)
            self._wake(tuple(feed.readers))

    def _note_rights(self) -> None:
        self.rights_changed += 1

    def close(self) -> None:
        """Ends all followers, present and future, so that a server can stop."""
        self.is_closed = True
        self._stop_watching()
        for reader in self.readers:
            reader.close()

    @property
    def readers(self) -> list[Reader]:
        """All present followers."""
        return [reader for feed in self._feeds.values() for reader in feed.readers]

    async def run(self) -> None:
        """Reads new events of all changed sessions in one call, until cancelled."""
        while True:
            await self._is_dirty.wait()
            self._is_dirty.clear()
            dirty, self._dirty = self._dirty, set()
            cursors = {session: self._feeds[session].head for session in dirty if session in self._feeds}
            if not cursors:
                continue
            try:
                slices = await read_each(self.read_logs, cursors, self.setbacks)
            except Exception as error:
                self.reading.failed(error)
                await asyncio.sleep(RETRY_SECONDS)
                self._dirty.update(cursors)
                self._is_dirty.set()
                continue
            self.reading.worked()
            for session in cursors.keys() - slices.keys():
                self._mark_later(session)
            self._take(cursors, slices)

    async def sweep(self) -> None:
        """Each second, sends keep-alives to quiet readers and ends stalled ones; until cancelled."""
        while True:
            await asyncio.sleep(1)
            readers = self.readers
            for start in range(0, len(readers), WAKES_AT_ONCE):
                now = self.clock.monotonic()
                for reader in readers[start : start + WAKES_AT_ONCE]:
                    with self.setbacks.attempt(reader, session=reader.session):
                        reader.sweep(now)
                await asyncio.sleep(0)

    def _mark(self, session: SessionRow) -> None:
        self._dirty.add(session)
        self._is_dirty.set()

    def _mark_later(self, session: SessionRow) -> None:
        self.loop.call_later(RETRY_SECONDS, self._mark, session)

    def _take(self, cursors: Mapping[SessionRow, int], slices: Mapping[SessionRow, LogSlice | None]) -> None:
        for session, slice in slices.items():
            feed, cursor = self._feeds.get(session), cursors[session]
            if feed is None or feed.head != cursor:
                continue
            if slice is None:
                for reader in feed.readers:  # the feed goes on: a session with this key may be made anew
                    reader.ending = reader.ending or LogLost("deleted")
            else:
                feed.extend(slice)
                if slice.events and feed.head < slice.last_seq:
                    self._mark(session)
                if feed.head == cursor:
                    continue  # nothing new: otherwise each reader of a crowd that subscribes would wake all the others
            self._wake(tuple(feed.readers))

    def _wake(self, readers: Sequence[Reader]) -> None:
        for reader in readers[:WAKES_AT_ONCE]:
            reader.wake()
        if len(readers) > WAKES_AT_ONCE:
            self.loop.call_soon(self._wake, readers[WAKES_AT_ONCE:])
