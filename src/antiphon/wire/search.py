"""What a search has found. Contract: gateway 4, search 1."""

from collections.abc import Sequence

from antiphon.domain.message import Role
from antiphon.engine.views.search import Hit
from antiphon.wire.encoding import Shape, milliseconds
from antiphon.wire.sessions import SessionShape


class FoundMessageShape(Shape, frozen=True, kw_only=True):
    """A message that contains all words."""

    session_key: str
    session_id: str
    """The incarnation that holds the message, which may have ended.

    `GET /sessions/{sessionId}/history?upTo={seq}` returns the page that ends with the message.
    """
    label: str | None = None
    """Of the session."""
    display_name: str | None = None
    seq: int
    role: Role
    created_at: int
    snippet: str
    """At most 300 characters around the first of the words."""


class FoundShape(Shape, frozen=True, kw_only=True):
    """Sessions with all words in their names or keys, and messages with all words."""

    sessions: Sequence[SessionShape]
    more_sessions: bool
    """Whether there are more of them; `GET /sessions?search=` pages through them."""
    messages: Sequence[FoundMessageShape]
    next_cursor: str | None = None
    """For older messages."""


def found_message(hit: Hit) -> FoundMessageShape:
    return FoundMessageShape(
        session_key=str(hit.session_key),
        session_id=hit.session_id,
        label=hit.label,
        display_name=hit.display_name,
        seq=hit.seq,
        role=hit.role,
        created_at=milliseconds(hit.created_at),
        snippet=hit.snippet,
    )
