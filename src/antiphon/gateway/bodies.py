"""Limits for the size of request bodies. Contract: gateway 5."""

from antiphon.domain.errors import TooLarge

SMALL_BYTES = 64 * 1024
"""For operations that take nothing large."""
WEBHOOK_BYTES = 1024 * 1024
LARGE_BYTES = 8 * 1024 * 1024
"""For operations that take messages; `gateway.max_body_bytes` overrides it."""


def body_too_large(limit: int) -> TooLarge:
    return TooLarge(f"Body is larger than {limit} bytes, the limit here. Send less.", code="body_too_large")


def limit_of(most: int, setting: int) -> int:
    """The most bytes for an operation that takes `most`; `setting` is the configured limit for messages."""
    return setting if most == LARGE_BYTES else min(most, setting)
