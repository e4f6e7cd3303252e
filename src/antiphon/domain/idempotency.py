"""The key with which a client names a request, so that the same request again is the same act. Contract: gateway."""

from antiphon.domain.errors import Invalid

MAX_IDEMPOTENCY_KEY = 200


def parse_idempotency_key(text: str) -> str:
    """The key. Raises `Invalid` (`invalid_idempotency_key`)."""
    if not 0 < len(text) <= MAX_IDEMPOTENCY_KEY or not text.isprintable():
        raise Invalid(
            f"Idempotency-Key is not valid: {text[:40]!r}. Use 1 to {MAX_IDEMPOTENCY_KEY} printable characters.",
            code="invalid_idempotency_key",
        )
    return text
