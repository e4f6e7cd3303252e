"""Limits on what a guest may use, checked before it uses more. Contract: access 4."""

import math

from antiphon.domain.errors import Denied, Limited
from antiphon.domain.message import ImagePart, Part, TextPart
from antiphon.policy.rights import is_favoured
from antiphon.policy.shares import Shares
from antiphon.policy.standing import Standing
from antiphon.store import held_messages
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.database import Query, Transaction
from antiphon.store.usage import MINUTE_MS, count_message

PATIENCE_SECONDS = 5
"""How long a guest whose runs wait should wait before it asks again."""


async def refuse_session(query: Query, standing: Standing, shares: Shares) -> None:
    """Raises if the principal may not take part in another session."""
    if is_favoured(standing):
        return
    taken = await rows.taken_by(query, str(standing.principal))
    if taken.sessions < shares.sessions:
        return
    raise Denied(
        f"Guest takes part in {taken.sessions} sessions, the maximum. Write in one of these; "
        "the owner can raise limits.guest.sessions.",
        code="guest_sessions",
    )


async def refuse_pace(tx: Transaction, standing: Standing, shares: Shares, *, at_ms: int) -> None:
    """Counts a message of that time; the refusal if it is one too many within a minute. A refused one counts, too."""
    if is_favoured(standing):
        return
    pace = await tx.keep(count_message, str(standing.principal), at_ms)
    if pace.messages <= shares.messages_per_minute:
        return
    raise Limited(
        f"Messages are too frequent: more than {shares.messages_per_minute} within a minute. This one is not "
        "stored; an owner can raise access.messagesPerMinute.",
        code="too_many_messages",
        retry_after_seconds=max(1, math.ceil((pace.since_ms + MINUTE_MS - at_ms) / 1000)),
    )


async def refuse_bytes(query: Query, standing: Standing, size: int, shares: Shares) -> None:
    """Raises if the principal may not store so many bytes more."""
    left = await bytes_left(query, standing, shares)
    if left is None or size <= left:
        return
    raise Denied(
        f"Guest has stored {shares.stored_bytes - left} bytes, and may store {shares.stored_bytes}. "
        "The owner can delete sessions, or raise limits.guest.storedBytes.",
        code="guest_bytes",
    )


async def bytes_left(query: Query, standing: Standing, shares: Shares) -> int | None:
    """How much the principal may still store, what waits to be stored taken off; None without a share."""
    if is_favoured(standing):
        return None
    name = str(standing.principal)
    taken, held = await rows.taken_by(query, name), await held_messages.share_of(query, name)
    return shares.stored_bytes - taken.stored_bytes - held.size


async def refuse_run(query: Query, standing: Standing, shares: Shares) -> None:
    """Raises if no further run of the principal may be queued now."""
    if is_favoured(standing):
        return
    waiting = await ledger.count_queued_by(query, standing.principal, shares.queued_runs)
    if waiting < shares.queued_runs:
        return
    raise Limited(
        f"Guest has {waiting} waiting runs, the maximum. Wait for answers before asking more.",
        code="guest_runs",
        retry_after_seconds=PATIENCE_SECONDS,
    )


def stored_bytes(content: tuple[Part, ...]) -> int:
    """The size of a message's parts as the limit counts them: encoded text and image data."""
    size = 0
    for part in content:
        match part:
            case TextPart():
                size += len(part.text.encode())
            case ImagePart():
                size += len(part.data)
            case _:
                pass
    return size
