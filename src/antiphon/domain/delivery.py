"""A delivery: a text that is to leave by a channel. Contract: channels 1."""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from antiphon.domain.ids import ProcessId, RunId, SessionId, SessionRow
from antiphon.domain.session import DeliveryContext

MAX_ATTEMPTS = 12
PATIENCE = timedelta(minutes=50)
"""Tried for at least so long, however soon the platform wants to be asked again."""
FIRST_WAIT = timedelta(seconds=5)
LONGEST_WAIT = timedelta(minutes=10)
LONGEST_WISH = timedelta(hours=1)
"""What a platform's wish to be left alone is cut to: a text behind it waits as long."""


class DeliveryStatus(StrEnum):
    QUEUED = "queued"
    CLAIMED = "claimed"
    """A process is sending it, or was when it died."""
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
    """Claims since it was queued, or queued anew by the owner. With the process they name one claim."""
    due_at: datetime
    process: ProcessId | None = None
    """Who claimed it."""
    platform_id: str | None = None
    """What the platform calls it."""
    error: str | None = None
    code: str | None = None
    created_at: datetime
    ended_at: datetime | None = None


class DeliveryFailed(Exception):
    """The text was not sent, as far as is known; the message says why, and holds no secret."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "channel_failed",
        is_permanent: bool = False,
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.is_permanent = is_permanent
        """Whether the same text would be refused again."""
        self.retry_after = retry_after
        """When the platform wants to be asked again; None where it does not say."""


def wait_before_next(attempts: int, wish: timedelta | None) -> timedelta:
    """How long a text waits after so many failed attempts: 5 s, 10 s, 20 s … 10 min, unless the platform says."""
    if wish is not None:
        return min(max(wish, FIRST_WAIT), LONGEST_WISH)
    return min(FIRST_WAIT * 2 ** min(attempts - 1, 20), LONGEST_WAIT)


def is_given_up(delivery: Delivery, now: datetime, *, is_permanent: bool) -> bool:
    """Whether a text that has failed again is not tried any more."""
    return is_permanent or (delivery.attempts >= MAX_ATTEMPTS and now - delivery.created_at >= PATIENCE)
