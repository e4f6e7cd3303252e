"""How large the bodies of requests may be. Contract: gateway 5."""

from antiphon.domain.errors import TooLarge

SMALL_BYTES = 64 * 1024
"""Where nothing large has to come in."""
WEBHOOK_BYTES = 1024 * 1024
LARGE_BYTES = 8 * 1024 * 1024
"""Where messages enter; `gateway.max_body_bytes` may lower or raise it."""


def body_too_large(limit: int) -> TooLarge:
    return TooLarge(f"Body is larger than {limit} bytes, the most that is taken here.", code="body_too_large")


def limit_of(most: int, setting: int) -> int:
    """The most bytes where an operation takes `most`; `setting` is the configured one for where messages enter."""
    return setting if most == LARGE_BYTES else min(most, setting)
