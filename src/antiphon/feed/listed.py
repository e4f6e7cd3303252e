"""Rows of a list as one kind of reader sees them: a snapshot, then what changes."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import anyio
from msgspec import Struct

from antiphon.domain.classification import Classification
from antiphon.domain.event import Event, EventType
from antiphon.domain.ids import SessionRow
from antiphon.domain.message import ToolResult
from antiphon.feed.changes import Change
from antiphon.feed.follow import Frame
from antiphon.policy.shown import is_shown

ROWS_AT_ONCE = 500
SNAPSHOT_SECONDS = 1.0

R = TypeVar("R")


class VisibleRow(Struct, Generic[R], frozen=True):
    """A row that the readers see."""

    key: str
    row: R
    clearance: Classification | None
    """What the readers may read of the log; None for nothing."""


ReadRows = Callable[[Sequence[SessionRow]], Awaitable[Mapping[SessionRow, VisibleRow[R]]]]
"""Those of at most 500 sessions that the readers see."""


class ListView(Struct, Generic[R], frozen=True):
    """How the readers see what changes. Each change is encoded once for all of them."""

    encode_changed: Callable[[str, VisibleRow[R], Event | None], Frame]
    """With the phase, and the newest message."""
    encode_gone: Callable[[str], Frame]
    """For a row that was deleted, or that they no longer see."""
    encode_message: Callable[[str, Event], Frame]


class ListedMessage(Struct, frozen=True):
    """A new message of a row."""

    seq: int
    is_result: bool
    """Whether it is the result of a tool."""
    frame: Frame


class ListReader(Protocol):
    """One reader. `take` gets a session's key, its new messages, and the change of its row; it must not wait."""

    def take(self, key: str, messages: Sequence[ListedMessage], changed: Frame) -> None: ...


class Listing(Generic[R]):
    """A list for all readers with the same rights and the same filter."""

    def __init__(self, read_rows: ReadRows[R], view: ListView[R]) -> None:
        self._read_rows = read_rows
        self._view = view
        self._shown: dict[SessionRow, str] = {}
        """The keys of the rows that were shown to a reader."""
        self.readers: dict[ListReader, None] = {}
        self._reading = anyio.Lock()
        self._changes = 0
        """How often something was reported."""
        self._snapshots: dict[Hashable, tuple[float, Frame]] = {}
        """With the time at which each was asked for."""

    async def snapshot(self, about: Hashable, read: Callable[[], Awaitable[Frame]]) -> Frame:
        """What `read` returns, for a reader that is registered already.

        Readers that come together share it: it is read anew once a change was reported, and after a second.
        """
        async with self._reading:
            now = asyncio.get_running_loop().time()
            kept = self._snapshots.get(about)
            if kept is not None and now - kept[0] < SNAPSHOT_SECONDS:
                return kept[1]
            self._snapshots.pop(about, None)
            changes = self._changes
            found = await read()
            if changes == self._changes:
                self._snapshots[about] = (now, found)
            return found

    def _note_change(self) -> None:
        self._changes += 1
        self._snapshots.clear()

    def note_shown(self, rows: Mapping[SessionRow, str]) -> None:
        """These are in the snapshot of a reader."""
        self._shown |= rows

    async def take(self, changes: Sequence[Change]) -> None:
        self._note_change()
        rows = await self._read_rows([change.session for change in changes if not change.is_gone])
        for change in changes:
            row = rows.get(change.session)
            if row is None:
                self._hide(change.session)
                continue
            self._shown[change.session] = row.key
            clearance = row.clearance
            readable = [e for e in change.events if clearance is not None and is_shown(e.classification, clearance)]
            messages = [event for event in readable if event.message is not None]
            listed = [
                ListedMessage(event.seq, isinstance(event.message, ToolResult), frame)
                for event in messages
                if (frame := self._view.encode_message(row.key, event))
            ]
            newest = messages[-1] if messages else None
            changed = self._view.encode_changed(phase_of(readable), row, newest)
            self._send(row.key, listed, changed)

    async def look_again(self) -> None:
        """Hides the rows that the readers no longer see."""
        self._note_change()
        shown = list(self._shown)
        for start in range(0, len(shown), ROWS_AT_ONCE):
            part = shown[start : start + ROWS_AT_ONCE]
            visible = await self._read_rows(part)
            for session in part:
                if session not in visible:
                    self._hide(session)

    def _hide(self, session: SessionRow) -> None:
        key = self._shown.pop(session, None)
        if key is not None:
            self._send(key, (), self._view.encode_gone(key))

    def _send(self, key: str, messages: Sequence[ListedMessage], changed: Frame) -> None:
        for reader in tuple(self.readers):
            reader.take(key, messages, changed)


def phase_of(events: Sequence[Event]) -> str:
    """The phase that says what happened; of several, the one that matters most."""
    found = {_phase(event) for event in events}
    return next((phase for phase in ("created", "reset", "message", "run") if phase in found), "patched")


def _phase(event: Event) -> str:
    if event.type == EventType.SESSION_STARTED:
        return "created" if event.data.get("reason") == "opened" else "reset"
    if event.message is not None:
        return "message"
    if event.type in (EventType.RUN_STARTED, EventType.RUN_FINISHED, EventType.TOOL_CALL):
        return "run"
    return "patched"
