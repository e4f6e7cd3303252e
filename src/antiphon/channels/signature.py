"""Signatures of webhooks: HMAC-SHA256 of the time and the body, in both directions alike."""

import hashlib
import hmac
from collections.abc import Mapping

from antiphon.domain.errors import Unproven

ID_HEADER = "Antiphon-Delivery"
TIME_HEADER = "Antiphon-Timestamp"
SIGNATURE_HEADER = "Antiphon-Signature"
MAX_AGE_SECONDS = 300
"""How far the sender's clock, and the way to us, may be off."""
_VERSION = "v1="
_MAX_DIGITS = 12


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """The value of `Antiphon-Signature`."""
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256)
    return _VERSION + digest.hexdigest()


def verify(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> None:
    """Raises `Unproven` unless the headers (with names in lower case) sign the body, a short time ago.

    The time is judged last, so that only who has the secret learns what is wrong with it.
    """
    time = headers.get(TIME_HEADER.lower(), "")
    is_number = time.isascii() and time.isdigit() and len(time) <= _MAX_DIGITS
    expected = sign(secret, int(time) if is_number else 0, body)
    given = headers.get(SIGNATURE_HEADER.lower(), "")
    is_same = hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))
    if not is_same or not is_number:
        raise Unproven(
            "Signature is not valid: send Antiphon-Timestamp and Antiphon-Signature as docs/WEBHOOKS.md shows, "
            "with the secret of this webhook.",
            code="bad_signature",
        )
    if abs(now - int(time)) > MAX_AGE_SECONDS:
        raise Unproven(
            f"Timestamp is more than {MAX_AGE_SECONDS // 60} minutes off: {time!r}. Set the clock, and sign anew.",
            code="stale_timestamp",
        )
