"""Words enter a log here, with what they do to the session's row. Contract: sessions 1, 2, 5, send 4, flow 2."""

import hashlib
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from antiphon.domain.actor import session_principal
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.ids import RunId, SessionId, SessionRow
from antiphon.domain.message import AssistantMessage, UserMessage, text_of
from antiphon.domain.session import DescriptionSource, Session, SessionStatus
from antiphon.domain.text import DESCRIPTION_LENGTH, PREVIEW_LENGTH, one_line
from antiphon.store import events as log
from antiphon.store import sessions as rows
from antiphon.store.database import SqlValue, Transaction
from antiphon.store.sessions import LogEnd


class Recipient(Protocol):
    """A session as far as words that enter it need it: its whole row, or the head of it."""

    @property
    def row(self) -> SessionRow: ...
    @property
    def id(self) -> SessionId: ...
    @property
    def status(self) -> str: ...
    @property
    def has_description(self) -> bool: ...


class Arrival(StrEnum):
    """What words that arrive do to their session."""

    POSTED = "posted"
    """Somebody turns to the session: it is shown again, and was interacted with."""
    RECORDED = "recorded"
    """The session is told something: it is shown again."""
    APPENDED = "appended"
    """The words are kept for later turns."""


class Words(Struct, frozen=True, kw_only=True):
    """A message that is to enter a log, and who says it."""

    message: UserMessage | AssistantMessage
    actor: str
    classification: Classification = PUBLIC
    arrival: Arrival = Arrival.POSTED
    is_addressed: bool = False
    """Whether the message can be found by its id; the log then refuses a second one of that id."""
    incarnation: SessionId | None = None
    """That they belong to; None for the session's present one."""
    preview: str | None = None
    """What lists show of them, if not their text."""
    occurred_at: datetime | None = None
    """When they were said, if not when they are stored."""
    end: LogEnd | None = None
    """Where the log ends, if that is known."""


def words_from(
    source: Session,
    message: UserMessage,
    arrival: Arrival = Arrival.RECORDED,
    *,
    classification: Classification | None = None,
    incarnation: SessionId | None = None,
    is_addressed: bool = False,
    preview: str | None = None,
) -> Words:
    """What another session says, at its taint unless said otherwise. Contract: send 4, flow 2."""
    return Words(
        message=message,
        actor=str(session_principal(str(source.key))),
        classification=source.taint if classification is None else classification,
        arrival=arrival,
        incarnation=incarnation,
        is_addressed=is_addressed,
        preview=preview,
    )


async def append_words(
    tx: Transaction, session: Recipient, words: Words, at_ms: int, *, run_id: RunId | None = None
) -> int:
    """Stores the message, which the run answers if one is given; returns its `seq`.

    What comes late for an ended incarnation changes nothing that is told of the present one.
    """
    incarnation = words.incarnation or session.id
    is_present = incarnation == session.id
    position = await log.append(
        tx,
        session.row,
        incarnation,
        [_event(words, run_id)],
        at_ms=at_ms,
        set=_changes(session, words, at_ms, is_present=is_present),
        add={"message_count": 1} if is_present else {},
        end=words.end,
    )
    if not is_present:
        await rows.stretch_incarnation(tx, incarnation, position.last_seq)
    return position.last_seq


def _event(words: Words, run_id: RunId | None) -> NewEvent:
    is_user = isinstance(words.message, UserMessage)
    return NewEvent(
        type=EventType.USER_MESSAGE if is_user else EventType.ASSISTANT_MESSAGE,
        actor=words.actor,
        run_id=run_id,
        classification=words.classification,
        message=words.message,
        is_addressed=words.is_addressed,
        occurred_at=words.occurred_at,
    )


def _changes(session: Recipient, words: Words, at_ms: int, *, is_present: bool) -> dict[str, SqlValue]:
    changes: dict[str, SqlValue] = {}
    if words.arrival is Arrival.POSTED:
        changes["interacted_at"] = at_ms
    if words.arrival is not Arrival.APPENDED and session.status == SessionStatus.INACTIVE:
        changes["status"] = SessionStatus.IDLE.value
    text = text_of(words.message.content)
    if not is_present or not text:
        return changes
    changes["preview"] = one_line(text, PREVIEW_LENGTH) if words.preview is None else words.preview
    describes = words.arrival is not Arrival.RECORDED and isinstance(words.message, UserMessage)
    if describes and not session.has_description:
        changes["description"] = one_line(text, DESCRIPTION_LENGTH)
        changes["description_source"] = DescriptionSource.FALLBACK.value
    return changes


def derived_id(prefix: str, at_ms: int, *parts: str) -> str:
    """An id that a unit can draw itself: the same for the same parts and time, and sorted by time like others."""
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"{prefix}_{at_ms:011x}{digest[:20]}"
