"""The events that a subscription to one session brings. Contract: gateway 2, 3."""

from collections.abc import Collection
from functools import lru_cache

from msgspec.structs import replace

from antiphon.domain.delay import Delay, DelayOver
from antiphon.domain.event import Event, EventType, is_bad_end
from antiphon.domain.ids import RunId
from antiphon.domain.message import AssistantMessage, ToolResult
from antiphon.engine.access.names import PersonNames
from antiphon.feed.follow import Frame, View
from antiphon.gateway.socket.frames import event_frame
from antiphon.wire import messages as wire
from antiphon.wire import runs as wire_runs
from antiphon.wire.encoding import Shape


class SessionMessage(Shape, frozen=True, kw_only=True):
    """A message of a session."""

    session_key: str
    message_id: str
    message_seq: int
    message: wire.MessageShape
    usage: wire_runs.UsageShape | None = None
    """What the model's answer used."""


class SessionEnding(Shape, frozen=True, kw_only=True):
    """The end of a run that failed, took too long or was cancelled."""

    session_key: str
    ending: wire.EndingShape


class SessionApproval(Shape, frozen=True, kw_only=True):
    """A request for approval, or its answer, in the session's log."""

    session_key: str
    event: wire.EventShape


class SessionDelta(Shape, frozen=True, kw_only=True):
    """A piece of a reply that is being written. Pieces have no number and may be lost."""

    session_key: str
    run_id: str
    text: str
    restart: bool | None = None
    """True if the pieces before it are void."""


class SessionDelay(Shape, frozen=True, kw_only=True):
    """Why a run waits for its model's provider, or that it goes on."""

    session_key: str
    delay: wire_runs.DelayEvent


class SessionReset(Shape, frozen=True, kw_only=True):
    """The subscription has ended, because the log is gone or hidden. Subscribe again if the session is still there."""

    session_key: str
    reason: str


def shown_message(key: str, event: Event, names: PersonNames) -> SessionMessage:
    """`event` holds a message."""
    shown = wire.message(event, author=names.author_of(event), compartments=names.compartments)
    usage = event.message.usage if isinstance(event.message, AssistantMessage) else None
    return SessionMessage(
        session_key=key,
        message_id=shown.message_id,
        message_seq=event.seq,
        message=shown,
        usage=None if usage is None or not usage.steps else wire_runs.usage_shape(usage),
    )


def without(view: View, seqs: Collection[int]) -> View:
    """The view of a reader who has the messages of these numbers already."""

    def encode(event: Event) -> Frame:
        return b"" if event.message is not None and event.seq in seqs else view.encode(event)

    return replace(view, encode=encode)


@lru_cache(maxsize=4096)
def messages_view(names: PersonNames, key: str, *, has_deltas: bool, include_tools: bool) -> View:
    """Whole frames with the messages of a session, one encoding for all its subscribers."""

    def encode(event: Event) -> Frame:
        if event.type in (EventType.APPROVAL_REQUESTED, EventType.APPROVAL_RESOLVED):
            shown = wire.event(event, names.name_of(event.actor), names.compartments)
            return event_frame("session.approval", SessionApproval(session_key=key, event=shown), seq=event.seq)
        if is_bad_end(event):
            ending = SessionEnding(session_key=key, ending=wire.ending(event))
            return event_frame("session.ending", ending, seq=event.seq)
        if event.message is None or (isinstance(event.message, ToolResult) and not include_tools):
            return b""
        return event_frame("session.message", shown_message(key, event, names), seq=event.seq)

    def encode_delta(run_id: RunId, text: str | None) -> Frame:
        if not has_deltas:
            return b""
        delta = SessionDelta(
            session_key=key, run_id=run_id, text=text or "", restart=None if text is not None else True
        )
        return event_frame("session.delta", delta)

    def encode_delay(run_id: RunId, delay: Delay | DelayOver) -> Frame:
        if not has_deltas:
            return b""
        return event_frame("session.delay", SessionDelay(session_key=key, delay=wire_runs.delay_event(run_id, delay)))

    return View(
        encode=encode,
        encode_delta=encode_delta,
        encode_delay=encode_delay,
        encode_reset=lambda reason: b"",
        keep_alive=b"",
    )
