"""The notifier for many processes: LISTEN and NOTIFY, with polling as a fallback.

Commits of this process wake its own readers at once. For other processes, all changes that arise while one
notification is under way go into the next. Deltas travel separately, a few times a second; they may be lost, as
any delta may.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator
from typing import Protocol

import anyio
from msgspec.json import Decoder, Encoder

from antiphon.domain.classification import PUBLIC
from antiphon.domain.delay import Delay, DelayOver, Delta, LivePiece
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import ProcessId, RunId, SessionRow
from antiphon.feed.local import LocalNotifier
from antiphon.store import sessions as rows
from antiphon.store.codec import classification, classification_values
from antiphon.store.database import Database
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
"""The longest delay after a lost wake."""
RETRY_SECONDS = 0.2
DELTA_SECONDS = 0.05
"""Between notifications with deltas."""
MAX_DELTA_BYTES = 7_000
"""In one notification."""
MAX_WAITING_DELTAS = 1_000
MAX_SESSIONS = 400
"""In one notification, which holds 8,000 bytes."""


PIECE = 1_000
"""Characters; each may become six bytes."""
Secrecy = tuple[int, int, int, str | None]
"""The values of a classification."""
PackedDelta = tuple[int, int, str, str | None, Secrecy | None]
"""The session, the event that the delta comes after, the run, the text, and its classification; None for public.

A delay has the session's number below zero and is JSON, or nothing once it is over.
"""
ShowDelta = Callable[[SessionRow, Delta], None]
_encode = Encoder().encode
_decode_deltas = Decoder(list[PackedDelta]).decode
_decode_delay = Decoder(Delay).decode


class NotificationChannel(Protocol):
    """Short texts to every process of the database, including this one. A text may be lost."""

    async def send(self, text: str) -> None: ...

    def receive(self) -> AsyncGenerator[str | None]:
        """Yields None once it listens, then the texts. Raises `Unavailable` when the connection breaks."""
        ...


class PostgresNotifier:
    """Implements `Notifier`. `run` must be running in a task."""

    def __init__(
        self, channel: NotificationChannel, process: ProcessId, *, on_interrupt: Callable[[SessionRow], None]
    ) -> None:
        self._channel = channel
        self._process = process
        self._on_interrupt = on_interrupt
        self._on_delta: ShowDelta = _show_nobody
        self._deltas: list[PackedDelta] = []
        self._has_deltas = asyncio.Event()
        self._sending_deltas = asyncio.Lock()
        self._local = LocalNotifier()
        self._woken: dict[SessionRow, None] = {}
        self._interrupted: dict[SessionRow, None] = {}
        self._has_news = asyncio.Event()
        self._last_seqs: dict[SessionRow, int] = {}
        means = "News reach other processes late."
        self._notifying = Trouble(logger, "Notifying", action="notify_failed", means=means)
        self._listening = Trouble(logger, "Listening", action="listen_failed", means=means)
        self._showing = Trouble(
            logger, "Showing replies elsewhere", action="deltas_failed", means="They come when they end."
        )
        self._hearing = Trouble(logger, "Reading a notification", action="notification_unread", means=means)
        self._polling = Trouble(logger, "Looking for news", action="poll_failed", means=means)

    def subscribe(self, session: SessionRow, wake: Callable[[], None]) -> Callable[[], None]:
        return self._local.subscribe(session, wake)

    def subscribe_all(self, wake: Callable[[Collection[SessionRow]], None]) -> Callable[[], None]:
        return self._local.subscribe_all(wake)

    def subscribe_everywhere(self, wake: Callable[[Collection[SessionRow] | None], None]) -> Callable[[], None]:
        return self._local.subscribe_everywhere(wake)

    def publish(self, woken: Collection[SessionRow], interrupted: Iterable[SessionRow]) -> None:
        """Reports a commit: wakes readers here at once and in other processes soon."""
        self._local.publish(woken)
        for session in interrupted:
            self._on_interrupt(session)
            self._interrupted[session] = None
        self._woken.update(dict.fromkeys(woken))
        self._has_news.set()

    def show_deltas(self, show: ShowDelta) -> None:
        """From now on calls `show` with the deltas of other processes."""
        self._on_delta = show

    def publish_delta(self, session: SessionRow, delta: Delta) -> None:
        """Shows a piece in the other processes."""
        if len(self._deltas) < MAX_WAITING_DELTAS:
            self._deltas.append(_packed(session, delta))
            self._has_deltas.set()

    async def run(self, database: Database) -> None:
        """Sends, listens and polls, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send)
            tasks.start_soon(self._send_deltas)
            tasks.start_soon(self._listen)
            tasks.start_soon(self._poll, database)

    async def _send(self) -> None:
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            while self._woken or self._interrupted:
                woken, interrupted = _take(self._woken), _take(self._interrupted)
                try:
                    await self._flush_deltas()  # deltas must arrive before the message that ends them
                    await self._channel.send(_text(self._process, woken, interrupted))
                except Exception as error:
                    self._notifying.failed(error)
                    self._woken.update(dict.fromkeys(woken))  # no poll makes up for wakes of lists and of rights
                    self._interrupted.update(dict.fromkeys(interrupted))
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    self._notifying.worked()

    async def _send_deltas(self) -> None:
        while True:
            await self._has_deltas.wait()
            self._has_deltas.clear()
            try:
                await self._flush_deltas()
            except Unavailable:
                pass  # the stored message will contain all of it
            except Exception as error:
                self._showing.failed(error)
            else:
                self._showing.worked()
            await asyncio.sleep(DELTA_SECONDS)

    async def _flush_deltas(self) -> None:
        async with self._sending_deltas:
            deltas, self._deltas = _joined(self._deltas), []
            for text in _delta_texts(self._process, deltas):
                await self._channel.send(text)

    async def _listen(self) -> None:
        while True:
            try:
                async for text in self._channel.receive():
                    if text is None:
                        self._listening.worked()
                        self._local.wake(self._local.subscribed)  # anything may have been missed
                        self._local.tell(None)
                    else:
                        self._try_to_hear(text)
            except Exception as error:
                self._listening.failed(error)
                await asyncio.sleep(RETRY_SECONDS)

    def _try_to_hear(self, text: str) -> None:
        """Passes over a notification that cannot be read, perhaps of another version: polls make up for it."""
        try:
            self._hear(text)
        except Exception as error:
            self._hearing.failed(error, text=text[:80])

    def _hear(self, text: str) -> None:
        process, woken, interrupted, deltas = text.split(" ", 3)
        if process == self._process:
            return
        for session, after, run_id, packed, secrecy in _decode_deltas(deltas) if deltas else ():
            made_of = PUBLIC if secrecy is None else classification(*secrecy)
            self._on_delta(SessionRow(abs(session)), Delta(RunId(run_id), after, _piece(session, packed), made_of))
        sessions = _sessions(woken)
        self._local.wake(sessions)
        if sessions:
            self._local.tell(sessions)
        for session in _sessions(interrupted):
            self._on_interrupt(session)

    async def _poll(self, database: Database) -> None:
        """Wakes the readers of sessions whose log has grown since the last poll."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            subscribed = self._local.subscribed
            if not subscribed:
                self._last_seqs.clear()
                continue
            try:
                found = await database.read(rows.find_last_seqs, subscribed)
            except Exception as error:
                self._polling.failed(error)
                continue
            self._polling.worked()
            self._local.wake(session for session in subscribed if found.get(session) != self._last_seqs.get(session))
            self._last_seqs = found


def _take(sessions: dict[SessionRow, None]) -> list[SessionRow]:
    taken = list(sessions)[:MAX_SESSIONS]
    for session in taken:
        del sessions[session]
    return taken


def _text(process: ProcessId, woken: Collection[SessionRow], interrupted: Collection[SessionRow]) -> str:
    return f"{process} {','.join(map(str, woken))} {','.join(map(str, interrupted))} "


def _joined(deltas: Iterable[PackedDelta]) -> list[PackedDelta]:
    """Joins consecutive deltas of the same response."""
    joined: list[PackedDelta] = []
    for delta in deltas:
        session, after, run_id, text, secrecy = delta
        if session > 0 and text is not None and joined:
            *same, before, made_of = joined[-1]
            if before is not None and (*same, made_of) == (session, after, run_id, secrecy):
                joined[-1] = (session, after, run_id, before + text, secrecy)
                continue
        joined.append(delta)
    return joined


def _delta_texts(process: ProcessId, deltas: Iterable[PackedDelta]) -> Iterator[str]:
    """Notifications with the deltas in order, each filled up to the limit."""
    part: list[PackedDelta] = []
    size = 0
    for session, after, run_id, text, secrecy in deltas:
        pieces = [text] if not text or session < 0 else [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
        for piece in pieces:
            delta = (session, after, run_id, piece, secrecy)
            length = len(_encode(delta))
            if part and size + length > MAX_DELTA_BYTES:
                yield f"{process}   {_encode(part).decode()}"
                part, size = [], 0
            part.append(delta)
            size += length
    if part:
        yield f"{process}   {_encode(part).decode()}"


def _packed(session: SessionRow, delta: Delta) -> PackedDelta:
    piece, made_of = delta.piece, delta.made_of
    secrecy = None if made_of is PUBLIC else classification_values(made_of)
    if isinstance(piece, Delay):
        return -session, delta.after, delta.run, _encode(piece).decode(), secrecy
    if isinstance(piece, DelayOver):
        return -session, delta.after, delta.run, "", secrecy
    return session, delta.after, delta.run, piece, secrecy


def _piece(session: int, text: str | None) -> LivePiece:
    if session > 0:
        return text
    return _decode_delay(text) if text else DelayOver()


def _show_nobody(session: SessionRow, delta: Delta) -> None:
    return


def _sessions(text: str) -> list[SessionRow]:
    return [SessionRow(int(number)) for number in text.split(",") if number]
