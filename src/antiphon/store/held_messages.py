"""Messages of channels that were taken in and wait to be posted. Contract: channels 1.

Of each place only the first one may be posted, so that its messages keep their order.
"""

from typing import NewType

from msgspec import Struct

from antiphon.domain.inbound import Inbound
from antiphon.domain.session import DeliveryContext
from antiphon.store import codec
from antiphon.store.channel_accounts import AccountName
from antiphon.store.database import Query, Transaction
from antiphon.store.select_list import SelectList

HeldId = NewType("HeldId", int)
MOST_LISTED = 200


class HeldMessage(Struct, frozen=True, kw_only=True):
    id: HeldId
    recipient: str
    thread_id: str
    principal: str
    """Whose it was when it came."""
    is_favoured: bool
    """Whether it goes before others."""
    is_counted: bool
    """Whether it was counted among its sender's messages of a minute."""
    size: int
    """Of its text and its files, as the platform said: held for it in its sender's share."""
    message: str
    """As JSON; `codec.inbound` reads it."""
    held_at: int
    """In milliseconds."""
    parts: int = 1
    """How many messages it is made of."""
    open_until: int = 0
    """Until when others may become one with it."""
    files: int = 1
    """How many files are to be fetched for it."""


_HELD = SelectList(
    HeldMessage,
    "id, recipient, thread_id, principal, is_favoured, is_counted, size, message, held_at, parts, open_until, files",
    is_favoured=bool,
    is_counted=bool,
)


class Share(Struct, frozen=True):
    """What a principal's held messages will take."""

    messages: int
    size: int


class NewHeld(Struct, frozen=True, kw_only=True):
    """A message that begins to wait; the fields are those of `HeldMessage`."""

    principal: str
    is_favoured: bool
    is_counted: bool
    size: int
    message: Inbound
    held_at: int
    due_at: int
    open_until: int = 0


async def insert(tx: Transaction, new: NewHeld) -> None:
    place = new.message.place
    await tx.execute(
        "INSERT INTO held_messages (channel, account, recipient, thread_id, platform_id, principal, is_favoured, "
        "is_counted, size, message, held_at, due_at, open_until, files) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            place.channel,
            place.account_id,
            place.to,
            place.thread_id or "",
            new.message.platform_id,
            new.principal,
            int(new.is_favoured),
            int(new.is_counted),
            new.size,
            codec.json_text(new.message),
            new.held_at,
            new.due_at,
            new.open_until,
            len(new.message.unfetched),
        ),
    )


async def is_waiting_in(query: Query, place: DeliveryContext) -> bool:
    """Whether a message of the place waits, so that later ones wait behind it."""
    row = await query.fetch_one(
        "SELECT 1 FROM held_messages WHERE channel = ? AND account = ? AND recipient = ? AND thread_id = ? LIMIT 1",
        (place.channel, place.account_id, place.to, place.thread_id or ""),
    )
    return row is not None


async def find_open(query: Query, place: DeliveryContext, principal: str, now_ms: int) -> HeldMessage | None:
    """The principal's newest message of the place, if others may become one with it now."""
    row = await query.fetch_one(
        f"SELECT {_HELD.text} FROM held_messages WHERE channel = ? AND account = ? AND recipient = ? AND thread_id = ? "
        "AND principal = ? AND held_at <= ? AND open_until > ? ORDER BY id DESC LIMIT 1",
        (place.channel, place.account_id, place.to, place.thread_id or "", principal, now_ms, now_ms),
    )
    return None if row is None else _HELD.read(row)


async def find_first_in(query: Query, place: DeliveryContext) -> HeldMessage | None:
    row = await query.fetch_one(
        f"SELECT {_HELD.text} FROM held_messages WHERE channel = ? AND account = ? AND recipient = ? AND thread_id = ? "
        "ORDER BY id LIMIT 1",
        (place.channel, place.account_id, place.to, place.thread_id or ""),
    )
    return None if row is None else _HELD.read(row)


async def add_part(tx: Transaction, held: HeldMessage, message: Inbound, *, size: int, open_until: int) -> None:
    """Stores the message with a further part; it waits until then."""
    await tx.execute(
        "UPDATE held_messages SET message = ?, size = size + ?, files = files + ?, parts = parts + 1, open_until = ?, "
        "due_at = ? WHERE id = ?",
        (codec.json_text(message), size, len(message.parts[-1].unfetched), open_until, open_until, held.id),
    )


async def close(tx: Transaction, held: HeldMessage, at_ms: int) -> None:
    """Nothing more becomes one with it, so it waits no longer for that."""
    await tx.execute("UPDATE held_messages SET open_until = 0, due_at = ? WHERE id = ?", (at_ms, held.id))


async def share_of(query: Query, principal: str) -> Share:
    row = await query.fetch_one(
        "SELECT COUNT(*), COALESCE(SUM(size), 0) FROM held_messages WHERE principal = ?", (principal,)
    )
    assert row is not None
    return Share(*map(int, row))


async def size_of_all(query: Query) -> int:
    row = await query.fetch_one("SELECT COALESCE(SUM(size), 0) FROM held_messages")
    assert row is not None
    return int(row[0])


async def list_first(query: Query, account: AccountName, now_ms: int) -> list[HeldMessage]:
    """The first of each place, if it is due: of owners, then in the order in which they came."""
    rows = await query.fetch_all(
        f"SELECT {_HELD.text} FROM held_messages h WHERE channel = ? AND account = ? AND due_at <= ? AND NOT EXISTS "
        "(SELECT 1 FROM held_messages e WHERE e.channel = h.channel AND e.account = h.account "
        "AND e.recipient = h.recipient AND e.thread_id = h.thread_id AND e.id < h.id) "
        "ORDER BY is_favoured DESC, id LIMIT ?",
        (*account, now_ms, MOST_LISTED),
    )
    return [_HELD.read(row) for row in rows]


async def list_dues(query: Query) -> dict[AccountName, int]:
    """When the first message of each account is due for which any waits."""
    rows = await query.fetch_all("SELECT channel, account, MIN(due_at) FROM held_messages GROUP BY channel, account")
    return {AccountName(channel, account): due_ms for channel, account, due_ms in rows}


async def next_due(query: Query, account: AccountName, now_ms: int) -> int | None:
    """When the next message of the account is due that is not yet."""
    statement = "SELECT MIN(due_at) FROM held_messages WHERE channel = ? AND account = ? AND due_at > ?"
    row = await query.fetch_one(statement, (*account, now_ms))
    return None if row is None else row[0]


async def is_waiting(query: Query, held: HeldMessage) -> bool:
    """Whether it waits as it was read; if another message became one with it since, it has to be read again."""
    statement = "SELECT 1 FROM held_messages WHERE id = ? AND parts = ?"
    return await query.fetch_one(statement, (held.id, held.parts)) is not None


async def set_counted(tx: Transaction, id: HeldId) -> None:
    await tx.execute("UPDATE held_messages SET is_counted = 1 WHERE id = ?", (id,))


async def postpone(tx: Transaction, id: HeldId, due_ms: int) -> None:
    await tx.execute("UPDATE held_messages SET due_at = ? WHERE id = ?", (due_ms, id))


async def delete(tx: Transaction, id: HeldId) -> None:
    await tx.execute("DELETE FROM held_messages WHERE id = ?", (id,))
