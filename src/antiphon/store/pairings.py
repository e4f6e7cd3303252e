"""Senders who wait until an owner admits them, and what became of them. Contract: access 3."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from antiphon.domain.session import DeliveryContext
from antiphon.store import codec
from antiphon.store.database import Query, Transaction
from antiphon.store.select_list import Combined, SelectList


class PairingState(StrEnum):
    OPEN = "open"
    APPROVED = "approved"
    REFUSED = "refused"
    EXPIRED = "expired"


class Pairing(Struct, frozen=True, kw_only=True):
    """A sender's request to be admitted."""

    id: str
    platform_id: str
    """The sender's account on the platform."""
    name: str
    code_hash: str
    place: DeliveryContext
    """The sender's chat."""
    message: str | None
    """The first message, as JSON; None if there was none, and once it is over."""
    state: PairingState
    told_at: datetime
    """When the sender was given the code."""
    created_at: datetime
    expires_at: datetime


_PAIRING = SelectList(
    Pairing,
    "id, platform_id, name, code_hash, channel, recipient, account, thread_id, message, state, told_at, created_at, "
    "expires_at",
    state=codec.member_of(PairingState),
    told_at=codec.moment,
    created_at=codec.moment,
    expires_at=codec.moment,
    place=Combined(DeliveryContext, channel="channel", to="recipient", account_id="account", thread_id="thread_id"),
)
_SELECT = f"SELECT {_PAIRING.text} FROM pairings"


async def insert(tx: Transaction, pairing: Pairing) -> None:
    place = pairing.place
    await tx.execute(
        "INSERT INTO pairings (id, channel, account, platform_id, name, code_hash, recipient, thread_id, message, "
        "state, told_at, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            pairing.id,
            place.channel,
            place.account_id,
            pairing.platform_id,
            pairing.name,
            pairing.code_hash,
            place.to,
            place.thread_id,
            pairing.message,
            pairing.state.value,
            codec.milliseconds(pairing.told_at),
            codec.milliseconds(pairing.created_at),
            codec.milliseconds(pairing.expires_at),
        ),
    )


async def find(query: Query, id: str) -> Pairing | None:
    row = await query.fetch_one(f"{_SELECT} WHERE id = ?", (id,))
    return None if row is None else _PAIRING.read(row)


async def find_newest(query: Query, channel: str, account: str, platform_id: str) -> Pairing | None:
    """The sender's newest request, in any state."""
    row = await query.fetch_one(
        f"{_SELECT} WHERE channel = ? AND account = ? AND platform_id = ? ORDER BY created_at DESC, id DESC LIMIT 1",
        (channel, account, platform_id),
    )
    return None if row is None else _PAIRING.read(row)


async def is_approved(query: Query, channel: str, account: str, platform_id: str) -> bool:
    """Whether an owner has ever admitted the sender."""
    row = await query.fetch_one(
        "SELECT 1 FROM pairings WHERE channel = ? AND account = ? AND platform_id = ? AND state = 'approved' LIMIT 1",
        (channel, account, platform_id),
    )
    return row is not None


async def list_open(query: Query, now_ms: int) -> list[Pairing]:
    """The requests that an owner can decide, the oldest first."""
    found = await query.fetch_all(f"{_SELECT} WHERE state = 'open' AND expires_at > ? ORDER BY id", (now_ms,))
    return [_PAIRING.read(row) for row in found]


async def count_waiting(query: Query, now_ms: int) -> int:
    """How many senders and groups wait for an owner, on all accounts."""
    row = await query.fetch_one(
        "SELECT (SELECT COUNT(*) FROM pairings WHERE state = 'open' AND expires_at > ?) "
        "+ (SELECT COUNT(*) FROM groups_of_channels WHERE state = 'asked')",
        (now_ms,),
    )
    assert row is not None
    return int(row[0])


async def count_open(query: Query, channel: str, account: str, now_ms: int) -> int:
    row = await query.fetch_one(
        "SELECT COUNT(*) FROM pairings WHERE state = 'open' AND channel = ? AND account = ? AND expires_at > ?",
        (channel, account, now_ms),
    )
    assert row is not None
    return int(row[0])


async def expire(tx: Transaction, now_ms: int, kept_ms: int) -> None:
    """Ends the requests whose time is over, and forgets those that ended unanswered longer ago than `kept_ms`."""
    await tx.execute(
        "UPDATE pairings SET state = 'expired', message = NULL WHERE state = 'open' AND expires_at <= ?", (now_ms,)
    )
    await tx.execute("DELETE FROM pairings WHERE state = 'expired' AND expires_at < ?", (now_ms - kept_ms,))


async def keep_message(tx: Transaction, id: str, message: str) -> None:
    """Stores the first message of a sender whose request had none."""
    await tx.execute("UPDATE pairings SET message = ? WHERE id = ? AND message IS NULL", (message, id))


async def decide(tx: Transaction, id: str, state: PairingState, *, by: str, at_ms: int) -> bool:
    """Stores the decision; False if the request was answered before."""
    changed = await tx.change(
        "UPDATE pairings SET state = ?, message = NULL, decided_by = ?, decided_at = ? WHERE id = ? AND state = 'open'",
        (state.value, by, at_ms, id),
    )
    return changed == 1
