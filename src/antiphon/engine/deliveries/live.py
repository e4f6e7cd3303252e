"""Replies shown while they are written: drafts in direct chats, one message that is edited elsewhere.

Only runs that execute in this process are shown. That a message is about to be sent is stored before it is sent, and
its id before it is changed; the run's reply replaces it: `outbox.enqueue`. If no answer says whether the platform has
the message, nothing more is shown until the reply, which is a new message of the same delivery. Before its run ends,
the worker leaves the stream, so that no late change covers the reply. Contract: groups 3, flow 7, channels 1.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

from antiphon.clock import Clock
from antiphon.domain.channel_form import ChannelForm, DeliveryPart, Streaming
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.delay import Delta
from antiphon.domain.delivery import GONE, Delivery, DeliveryFailed, DeliveryStatus
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import RunId, SessionId, SessionRow
from antiphon.domain.parts import parts_of
from antiphon.domain.run import Run
from antiphon.domain.silence import spoken_so_far
from antiphon.engine.deliveries.deliverer import PartSender
from antiphon.engine.deliveries.outbox import StreamedText, begin_stream, forget_stream, note_shown
from antiphon.engine.deliveries.output_rules import looks_at_output
from antiphon.engine.deliveries.paces import RateLimits, account_of
from antiphon.engine.deliveries.showing import DraftView, LiveSender, Question, look
from antiphon.engine.ledger.text_work import work_on
from antiphon.engine.rules import Rules
from antiphon.feed.notifier import Notifier
from antiphon.store import deliveries as outbox
from antiphon.store.database import Database
from antiphon.store.deliveries import ChannelAccount
from antiphon.store.people import NAMES
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

R = TypeVar("R")

FIRST_MS = 300
"""How long the sign that somebody writes waits after a run's begin, and the first words after they came. A reply that
is complete by then is sent as a whole, at no cost."""
REPEAT_MS = 20_000
"""Between repetitions of an unchanged draft, which vanishes after 30 s."""
TYPING_MS = 4_000
"""Between signs that an answer is being written, which last 5 s."""
SWEEP_SECONDS = 1.0
RETRY_SECONDS = 0.5
LEAVE_SECONDS = 10.0
"""How long the end of a run waits for a change that is on its way."""


@dataclass(slots=True, eq=False)
class _Stream:
    """The reply of one run, as far as it is written."""

    run: Run
    begun_at_ms: int
    pieces: list[str] = field(default_factory=list[str])
    after: int = -1
    made_of: Classification = PUBLIC
    since_ms: int | None = None
    """When its first words came."""
    is_changed: bool = False
    """Whether there are words that were not shown."""
    view: DraftView | None = None
    judged: Classification | None = None
    """What the words were made of when the place was last judged."""
    delivery: str | None = None
    """The delivery that the message belongs to."""
    message: str | None = None
    """The platform's id of the message that shows it."""
    shown: str = ""
    shown_at_ms: int = 0
    typed_at_ms: int | None = None
    is_mute: bool = False
    """Whether nothing more of it is shown."""
    drafts_fail: bool = False
    has_turn: bool = False
    """Whether the chat is kept free for the change that is under way."""
    is_busy: bool = False
    is_left: bool = False
    is_outdated: bool = False
    """Whether something that the last decision depends on may have changed."""
    stop_watching: Callable[[], None] = lambda: None
    rested: asyncio.Event = field(default_factory=asyncio.Event)
    scope: anyio.CancelScope | None = None

    @property
    def has_begun(self) -> bool:
        """Whether people see a beginning of it."""
        return bool(self.shown) or self.message is not None


class LiveReplies:
    """Shows replies on the accounts of this process while they are written. `run` must be running in a task."""

    def __init__(
        self,
        *,
        database: Database,
        notifier: Notifier,
        channels: Mapping[ChannelAccount, PartSender],
        rules: Rules,
        paces: RateLimits,
        clock: Clock,
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._channels = {
            account: channel
            for account, channel in channels.items()
            if channel.form.streaming is not Streaming.NONE and isinstance(channel, LiveSender)
        }
        self._rules = rules
        self._paces = paces
        self._clock = clock
        self._streams: dict[RunId, _Stream] = {}
        self._woken = asyncio.Event()
        self._is_idle = asyncio.Event()
        if self._channels:
            for row in (NAMES, outbox.PLACES):
                notifier.subscribe(row, self._note_change)
        self._showing = Trouble(
            logger,
            "Showing a reply while it is written",
            action="live_failed",
            means="Replies are sent when they end.",
        )

    @property
    def is_serving(self) -> bool:
        """Whether any account of this process shows replies while they are written."""
        return bool(self._channels)

    def wake(self) -> None:
        """Makes it look again at once."""
        self._is_idle.clear()
        self._woken.set()

    async def wait_idle(self) -> None:
        """Returns after a look that began after this call and found nothing due while nothing is being shown."""
        if self._channels:
            self.wake()
        await self._is_idle.wait()

    def begin(self, run: Run) -> None:
        """The run executes from now on: follows it, if its reply may go to a place that is served here.

        Nothing is shown while rules or checks look at texts before they leave. Contract: flow 9.
        """
        if not self._channels or not run.purpose.speaks_for_itself or looks_at_output(self._rules):
            return
        if run.place is not None and account_of(run.place) not in self._channels:
            return
        stream = self._streams[run.id] = _Stream(run, self._paces.now_ms())
        # A message from elsewhere may move the session's place.
        stream.stop_watching = self._notifier.subscribe(SessionRow(run.session), lambda: _outdate(stream))
        self.wake()

    def publish(self, session: SessionRow, delta: Delta) -> None:
        """Takes a piece of a reply; returns at once."""
        stream, piece = self._streams.get(delta.run), delta.piece
        if stream is None or not (piece is None or isinstance(piece, str)):
            return
        if piece is None or delta.after != stream.after:
            stream.pieces.clear()
        stream.after, stream.made_of = delta.after, delta.made_of
        if piece:
            stream.pieces.append(piece)
            if stream.since_ms is None:
                stream.since_ms = self._paces.now_ms()
            if not stream.is_changed:
                stream.is_changed = True
                self.wake()

    def forget(self, run: RunId) -> None:
        """The run does not execute here any more; a change that is on its way ends by itself."""
        if (stream := self._streams.pop(run, None)) is not None:
            stream.is_left = True
            stream.stop_watching()

    async def leave(self, run: RunId) -> None:
        """Returns once nothing more of the run's reply is changed here: the run is about to end."""
        stream = self._streams.pop(run, None)
        if stream is None:
            return
        stream.is_left = True
        stream.stop_watching()
        if stream.is_busy:
            with anyio.move_on_after(LEAVE_SECONDS):
                await stream.rested.wait()
            if stream.is_busy and stream.scope is not None:
                stream.scope.cancel()

    async def run(self) -> None:
        """Shows what is due, until cancelled."""
        if not self._channels:
            self._is_idle.set()
            return
        async with anyio.create_task_group() as tasks:
            while True:
                self._woken.clear()
                due_ms = self._begin_due(tasks)
                if not any(stream.is_busy for stream in self._streams.values()) and not self._woken.is_set():
                    self._is_idle.set()
                if due_ms is None:
                    await self._woken.wait()
                else:
                    with anyio.move_on_after(min(due_ms / 1000, SWEEP_SECONDS)):
                        await self._woken.wait()

    def _note_change(self) -> None:
        """Somebody's rights, a send policy, a group or a route may have changed."""
        for stream in self._streams.values():
            _outdate(stream)

    def _begin_due(self, tasks: TaskGroup) -> int | None:
        """Begins what is due; returns the time until the next, None if nothing is to come."""
        now, waits = self._paces.now_ms(), list[int]()
        for stream in sorted(self._streams.values(), key=lambda stream: stream.shown_at_ms):
            due = self._try_due_at(stream)
            if due is None:
                continue
            if due > now:
                waits.append(due - now)
                continue
            stream.is_busy = True
            stream.rested.clear()
            stream.has_turn = stream.view is not None and stream.is_changed
            if stream.view is not None and stream.has_turn:
                # Other streams of the chat wait their turn.
                self._paces.note_use(stream.view.chat)
            tasks.start_soon(self._show_next, stream)
        return min(waits, default=None)

    def _try_due_at(self, stream: _Stream) -> int | None:
        """When the stream is due; one for which that cannot be said is shown no more, and the others go on."""
        try:
            return None if stream.is_busy else self._due_at(stream)
        except Exception as error:
            self._crashed(stream, error)
            return None

    def _crashed(self, stream: _Stream, error: Exception) -> None:
        stream.is_mute = True
        logger.error("Adapter failed", exc_info=error, extra={"action": "live_crashed", "run_id": stream.run.id})

    def _due_at(self, stream: _Stream) -> int | None:
        view = stream.view
        if stream.is_mute or looks_at_output(self._rules):  # rules may have come into force since it began
            return None
        if view is None:
            return stream.begun_at_ms + FIRST_MS
        if stream.is_changed:
            assert stream.since_ms is not None
            return max(stream.since_ms + FIRST_MS, self._free_at(view))
        pause_ends_at = self._paces.pause_ends_at(view.chat)
        if not stream.shown:
            if not view.may_type:
                return None
            return max(0 if stream.typed_at_ms is None else stream.typed_at_ms + TYPING_MS, pause_ends_at)
        return max(stream.shown_at_ms + REPEAT_MS, pause_ends_at) if self._is_drafted(stream, view) else None

    async def _show_next(self, stream: _Stream) -> None:
        try:
            await self._show(stream)
        except Unavailable as error:
            self._showing.failed(error)
            stream.is_mute = True
        except Exception as error:  # a bug in the adapter must not end the others' streams
            self._crashed(stream, error)
        finally:
            stream.is_busy = False
            stream.scope = None
            stream.rested.set()
            self.wake()

    async def _show(self, stream: _Stream) -> None:
        try:
            with anyio.CancelScope() as stream.scope:
                while True:
                    await self._judge(stream)
                    if stream.view is None or stream.is_left or stream.is_mute or looks_at_output(self._rules):
                        return
                    if stream.is_changed and not await self._has_turn(stream, stream.view):
                        return
                    if stream.judged == stream.made_of and not stream.is_outdated:
                        break
                await self._change(stream, stream.view)
                self._showing.worked()
        except DeliveryFailed as failed:
            self._failed(stream, failed)

    async def _has_turn(self, stream: _Stream, view: DraftView) -> bool:
        """Whether the words may be shown now: complete texts for the chat, in any thread, go first.

        A reply does not begin to be shown while an earlier text waits for its very place, due or not: people read
        what was said first.
        """
        if not stream.has_turn and self._free_at(view) > self._paces.now_ms():
            return False
        stream.has_turn = True
        self._paces.note_use(view.chat)
        read = self._database.read
        if not stream.has_begun and await read(outbox.is_any_waiting, view.place):
            return False
        return not await read(outbox.is_any_due, view.chat.account, view.chat.to, self._clock.now_ms())

    async def _judge(self, stream: _Stream) -> None:
        """Decides whether the words may go to the place: for each classification, and again after changes of rights.

        After a refusal, nothing more is shown until the reply, which has a decision of its own.
        """
        if stream.view is not None and stream.judged == stream.made_of and not stream.is_outdated:
            return
        made_of, stream.is_outdated = stream.made_of, False
        view = await self._database.read(look, Question(stream.run, made_of), self._rules, self._channels)
        if view is None or not view.may_show or (stream.view is not None and not view.is_where(stream.view)):
            stream.is_mute = True
        if view is None:
            return
        if stream.view is None and (earlier := view.streaming) is not None:
            stream.delivery, stream.message = earlier.id, earlier.platform_id
        stream.view, stream.judged = view, made_of

    async def _change(self, stream: _Stream, view: DraftView) -> None:
        is_new, stream.is_changed = stream.is_changed, False
        words = await self._words(stream, view) if is_new else stream.shown
        now = self._paces.now_ms()
        if not words:
            if view.may_type and not stream.shown:
                stream.typed_at_ms = now
                await _within(view.channel, lambda: view.channel.typing(view.place))
            return
        if is_new:
            self._paces.note_use(view.chat)
        if self._is_drafted(stream, view):
            await _within(view.channel, lambda: view.channel.draft(view.place, _draft_id(stream.run.id), words))
        elif words != stream.shown:
            await self._write(stream, view, words)
        stream.shown, stream.shown_at_ms = words, now

    async def _write(self, stream: _Stream, view: DraftView, words: str) -> None:
        """Sends the words as a message, or changes it."""
        if stream.message is None:
            await self._send_first(stream, view, words)
            return
        part = DeliveryPart(index=0, text=words, replaces=stream.message, is_growing=True, asker=view.asker)
        await self._send(stream, view, part)

    async def _send_first(self, stream: _Stream, view: DraftView, words: str) -> None:
        """Stores that a message is about to be sent, sends it, and stores its id."""
        run, sessions = stream.run, (SessionRow(stream.run.session),)
        streamed = StreamedText(run=run, place=view.place, made_of=stream.made_of)
        stream.delivery = await self._database.run(begin_stream, streamed, sessions=sessions)
        if stream.delivery is None:
            stream.is_mute = True
            return
        try:
            part = DeliveryPart(index=0, text=words, is_growing=True, asker=view.asker)
            sent = await self._send(stream, view, part)
        except DeliveryFailed as failed:
            if failed.was_refused:
                await self._database.run(forget_stream, run.id, sessions=sessions)
            else:
                stream.is_mute = True
            raise
        if sent is None or not await self._store(streamed, sent):
            stream.is_mute = True
            return
        stream.message = sent

    async def _send(self, stream: _Stream, view: DraftView, part: DeliveryPart) -> str | None:
        delivery = _delivery(stream, view, part.text, self._clock)
        return await _within(view.channel, lambda: view.channel.send(delivery, part))

    async def _store(self, streamed: StreamedText, sent: str) -> bool:
        """Tries until the database accepts it: a message that is not stored stays beside the reply."""
        sessions = (SessionRow(streamed.run.session),)
        while True:
            try:
                return await self._database.run(note_shown, streamed, sent, sessions=sessions)
            except Unavailable as error:
                if error.code == "store_closed":
                    raise
                self._showing.failed(error)
                await anyio.sleep(RETRY_SECONDS)

    async def _words(self, stream: _Stream, view: DraftView) -> str:
        """The words that may be shown so far, as far as one message holds them."""
        beginning = "".join(stream.pieces)
        parts = await work_on(len(beginning), _parts_so_far, beginning, view.channel.form)
        if not parts:
            return ""
        return parts[-1] if self._is_drafted(stream, view) else parts[0]

    def _failed(self, stream: _Stream, failed: DeliveryFailed) -> None:
        view = stream.view
        assert view is not None
        logger.info(
            "Reply could not be shown while it is written",
            extra={
                "action": "live_refused",
                "run_id": stream.run.id,
                "channel": view.place.channel,
                "code": failed.code,
            },
        )
        if failed.code == GONE:
            stream.is_mute = True
        if failed.retry_after is not None:
            self._paces.pause(view.chat, int(failed.retry_after.total_seconds() * 1000))
        if failed.is_permanent and self._is_drafted(stream, view):
            stream.drafts_fail = stream.is_changed = True
        elif failed.is_permanent:
            stream.is_mute = True
        else:
            stream.is_changed = bool(stream.pieces)

    def _is_drafted(self, stream: _Stream, view: DraftView) -> bool:
        is_drafting = view.channel.form.streaming is Streaming.DRAFT and view.is_direct
        return is_drafting and not stream.drafts_fail and stream.message is None

    def _interval(self, view: DraftView) -> int:
        form = view.channel.form
        return form.stream_interval_ms if view.is_direct else form.group_interval_ms

    def _free_at(self, view: DraftView) -> int:
        """When something of the chat may be changed again."""
        return self._paces.free_at(view.chat, self._interval(view))


def _outdate(stream: _Stream) -> None:
    stream.is_outdated = True


async def _within(channel: LiveSender, request: Callable[[], Awaitable[R]]) -> R:
    try:
        with anyio.fail_after(channel.timeout_seconds):
            return await request()
    except TimeoutError as error:
        raise DeliveryFailed("The platform did not answer in time.", code="channel_timeout") from error


def _parts_so_far(beginning: str, form: ChannelForm) -> list[str]:
    return parts_of(spoken_so_far(beginning).strip(), form)


def _delivery(stream: _Stream, view: DraftView, words: str, clock: Clock) -> Delivery:
    """The reply so far, in the form that adapters take."""
    assert stream.delivery is not None
    now = clock.now()
    return Delivery(
        id=stream.delivery,
        session=view.session.row,
        session_key=str(view.session.key),
        session_id=SessionId(stream.run.session_id),
        run_id=stream.run.id,
        place=view.place,
        text=words,
        made_of=stream.made_of,
        status=DeliveryStatus.STREAMING,
        due_at=now,
        platform_id=stream.message,
        created_at=now,
    )


def _draft_id(run: RunId) -> int:
    """Not zero, and the same for all drafts of the run."""
    return int.from_bytes(hashlib.sha256(run.encode()).digest()[:4]) % (2**31 - 1) + 1
