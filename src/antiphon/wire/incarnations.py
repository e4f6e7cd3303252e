"""Ended incarnations of a session. Contract: gateway 4."""

from collections.abc import Sequence

from antiphon.engine.views.incarnations import EarlierConversation
from antiphon.wire.encoding import Shape, milliseconds


class IncarnationShape(Shape, frozen=True, kw_only=True):
    """An earlier conversation of a session."""

    session_id: str
    """`GET /sessions/{sessionId}/history` reads it, and `POST /sessions/{sessionId}/fork` continues it."""
    started_at: int
    ended_at: int
    message_count: int
    """Messages of people and models that the caller may read; those above 1,000 are not counted."""
    first_words: str | None = None
    """At most 300 characters of its first message, on one line, without secrets."""
    withheld: bool | None = None
    """True if its first message may not go to the caller."""


class IncarnationList(Shape, frozen=True, kw_only=True):
    """A page of earlier conversations, newest first."""

    session_key: str
    count: int
    incarnations: Sequence[IncarnationShape]
    next_cursor: str | None = None


def incarnation(conversation: EarlierConversation) -> IncarnationShape:
    return IncarnationShape(
        session_id=conversation.id,
        started_at=milliseconds(conversation.started_at),
        ended_at=milliseconds(conversation.ended_at),
        message_count=conversation.message_count,
        first_words=conversation.first_words,
        withheld=conversation.is_withheld or None,
    )
