"""A delivery: a text that is to leave by a channel. Contract: channels 1."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from antiphon.domain.ids import RunId, SessionId, SessionRow
from antiphon.domain.session import DeliveryContext


class DeliveryStatus(StrEnum):
    QUEUED = "queued"
    CLAIMED = "claimed"
    SENT = "sent"
    SUPPRESSED = "suppressed"
    """Policy forbade it when it was claimed."""
    DEAD = "dead"
    """Given up; the owner sees it, and may have it tried again."""

    @property
    def is_terminal(self) -> bool:
        return self in (DeliveryStatus.SENT, DeliveryStatus.SUPPRESSED, DeliveryStatus.DEAD)


class Delivery(Struct, frozen=True, kw_only=True):
    """One row of the outbox."""

    id: str
    """Stable: the same in every attempt, for the platform to tell a repetition by."""
    session: SessionRow
    session_key: str
    session_id: SessionId
    run_id: RunId | None
    place: DeliveryContext
    text: str
    status: DeliveryStatus
    attempts: int = 0
    due_at: datetime
    error: str | None = None
    code: str | None = None
    created_at: datetime
    ended_at: datetime | None = None
