"""The key with which a client names a request, so that the same request again is the same act. Contract: gateway."""

from datetime import datetime

from msgspec import Struct

from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import ProcessId, SessionRow

MAX_IDEMPOTENCY_KEY = 200


class KeyedCall(Struct, frozen=True, kw_only=True):
    """A call from outside a run that has a key and needed no request for approval."""

    id: str
    session: SessionRow
    sha256: str
    """Of the tool and its arguments."""
    begun_at: datetime
    begun_by: ProcessId
    outcome: str | None = None
    """The answer as JSON, once there is one."""
    made_of: Classification = PUBLIC
    """What the answer is made of."""


def parse_idempotency_key(text: str) -> str:
    """The key. Raises `Invalid` (`invalid_idempotency_key`)."""
    if not 0 < len(text) <= MAX_IDEMPOTENCY_KEY or not text.isprintable():
        raise Invalid(
            f"Idempotency-Key is not valid: {text[:40]!r}. Use 1 to {MAX_IDEMPOTENCY_KEY} printable characters.",
            code="invalid_idempotency_key",
        )
    return text
