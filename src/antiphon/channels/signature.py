"""Signatures of webhooks and hooks: HMAC-SHA256 of the direction, the name, the time and the body."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from enum import StrEnum

from antiphon.domain.errors import Unproven

ID_HEADER = "Antiphon-Delivery"
TIME_HEADER = "Antiphon-Timestamp"
SIGNATURE_HEADER = "Antiphon-Signature"
MAX_AGE_SECONDS = 300
"""How far the sender's clock plus the delay on the way may be off."""
_VERSION = "v2="
TIME = re.compile(r"0|[1-9][0-9]{0,11}")
"""In one form only: a header that is changed on the way and still fits the signature would pass for another request."""
_SIGNATURE = re.compile(_VERSION + "[0-9a-f]{64}")


class Direction(StrEnum):
    """What a message is, so that one is never accepted as another, even with the same name and secret."""

    IN = "in"
    """To a webhook."""
    OUT = "out"
    """From a webhook."""
    HOOK = "hook"
    """To a hook."""


def sign(secret: str, direction: Direction, name: str, *, timestamp: int, body: bytes) -> str:
    """The value of `Antiphon-Signature`."""
    return _VERSION + digest_of(secret, _head(direction, name, timestamp) + body)


def check_form(headers: Mapping[str, str], direction: Direction = Direction.IN) -> None:
    """Raises `Unproven` for headers (with lower-case names) that cannot sign anything, before a body is read."""
    time, signature = headers.get(TIME_HEADER.lower(), ""), headers.get(SIGNATURE_HEADER.lower(), "")
    if not (TIME.fullmatch(time) and _SIGNATURE.fullmatch(signature)):
        raise bad_signature(direction)


def verify(
    secret: str,
    name: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: float,
    direction: Direction = Direction.IN,
) -> None:
    """Raises `Unproven` unless the headers sign this body as sent in to that webhook or hook, a short time ago.

    The time is checked last, so only a sender with the secret learns that the time is wrong.
    """
    check_form(headers, direction)
    time = headers[TIME_HEADER.lower()]
    head = _head(direction, name, int(time))
    if not is_signed(secret, head + body, headers[SIGNATURE_HEADER.lower()].removeprefix(_VERSION)):
        raise bad_signature(direction)
    check_age(time, now)


def is_signed(secret: str, signed: bytes, digest: str) -> bool:
    """Whether that is the HMAC-SHA256 of the bytes, in hexadecimal digits. The time that it takes tells nothing."""
    return hmac.compare_digest(digest_of(secret, signed).encode(), digest.encode())


def digest_of(secret: str, signed: bytes) -> str:
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def _head(direction: Direction, name: str, timestamp: int) -> bytes:
    """Names contain no dot, so no two messages have the same signed text."""
    return f"v2.{direction}.{name}.{timestamp}.".encode()


def check_age(time: str, now: float) -> None:
    """Raises `Unproven` for a signed time that is too long ago, or too far ahead."""
    if abs(now - int(time)) > MAX_AGE_SECONDS:
        raise Unproven(
            f"Timestamp is more than {MAX_AGE_SECONDS // 60} minutes off: {time!r}. Set the clock, and sign again.",
            code="stale_timestamp",
        )


def bad_signature(direction: Direction) -> Unproven:
    """The one refusal for a name that does not exist, a wrong secret, and headers that sign nothing."""
    return Unproven(refusal_of(direction), code="bad_signature")


def refusal_of(direction: Direction) -> str:
    """What that refusal says."""
    if direction is Direction.HOOK:
        return "Signature is not valid: sign the body as docs/HOOKS.md shows, with the secret of this hook."
    return (
        "Signature is not valid: send Antiphon-Timestamp and Antiphon-Signature as docs/WEBHOOKS.md shows, "
        "with the secret of this webhook."
    )
