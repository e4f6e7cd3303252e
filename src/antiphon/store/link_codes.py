"""Codes by which an account is linked to a person, and the wrong ones that were tried. Contract: access 3."""

import hmac

from msgspec import Struct

from antiphon.domain.person import Identity, PersonId
from antiphon.store.database import Query, Row, Transaction

MOST_OPEN = 3
"""Of one person; a new code replaces the oldest one."""
_SELECT = "SELECT code_hash, person, channel, account, platform_id, name FROM link_codes"
_SENDER = "channel = ? AND account = ? AND platform_id = ?"


class OpenCode(Struct, frozen=True, kw_only=True):
    """A code that is not used up."""

    hash: str
    person: PersonId
    asked: Identity | None
    """The account that waits until the maker agrees; None if none does."""
    name: str
    """The name of its sender; empty if nobody waits."""


async def insert(tx: Transaction, code_hash: str, person: PersonId, *, at_ms: int, expires_at_ms: int) -> None:
    await tx.execute("DELETE FROM link_codes WHERE expires_at <= ?", (at_ms,))
    await tx.execute(
        "DELETE FROM link_codes WHERE person = ? AND code_hash NOT IN (SELECT c.code_hash FROM link_codes c "
        "WHERE c.person = ? ORDER BY c.created_at DESC, c.code_hash LIMIT ?)",
        (person, person, MOST_OPEN - 1),
    )
    await tx.execute(
        "INSERT INTO link_codes (code_hash, person, created_at, expires_at) VALUES (?, ?, ?, ?)",
        (code_hash, person, at_ms, expires_at_ms),
    )


async def find(query: Query, code_hash: str, now_ms: int) -> OpenCode | None:
    """None for an unknown, used or expired one."""
    row = await query.fetch_one(f"{_SELECT} WHERE code_hash = ? AND expires_at > ?", (code_hash, now_ms))
    return None if row is None or not hmac.compare_digest(code_hash, row[0]) else _read(row)


async def find_asking(query: Query, beginning: str, now_ms: int) -> OpenCode | None:
    """The code about which its maker is asked, by the beginning of its hash, which nobody can redeem."""
    row = await query.fetch_one(
        f"{_SELECT} WHERE substr(code_hash, 1, CAST(? AS INTEGER)) = ? AND channel IS NOT NULL AND expires_at > ?",
        (len(beginning), beginning, now_ms),
    )
    return None if row is None else _read(row)


async def list_asking(query: Query, now_ms: int) -> list[OpenCode]:
    """The codes about which their makers are asked."""
    rows = await query.fetch_all(
        f"{_SELECT} WHERE channel IS NOT NULL AND expires_at > ? ORDER BY expires_at", (now_ms,)
    )
    return [_read(row) for row in rows]


def _read(row: Row) -> OpenCode:
    code_hash, person, channel, account, platform_id, name = row
    asked = None if channel is None else Identity(channel=channel, account=account, platform_id=platform_id)
    return OpenCode(hash=code_hash, person=PersonId(person), asked=asked, name=name or "")


async def use_up(tx: Transaction, code_hash: str) -> bool:
    """Deletes the code; whether it was there."""
    return await tx.change("DELETE FROM link_codes WHERE code_hash = ?", (code_hash,)) == 1


async def ask(tx: Transaction, code_hash: str, sender: Identity, name: str) -> bool:
    """Notes the account that waits for the code's maker; whether it is the first."""
    return (
        await tx.change(
            "UPDATE link_codes SET channel = ?, account = ?, platform_id = ?, name = ? "
            "WHERE code_hash = ? AND channel IS NULL",
            (*_values(sender), name, code_hash),
        )
        == 1
    )


async def count_wrong(query: Query, sender: Identity, since_ms: int) -> int:
    """How many wrong codes the sender has tried since that time."""
    row = await query.fetch_one(
        f"SELECT count FROM wrong_codes WHERE {_SENDER} AND since > ?", (*_values(sender), since_ms)
    )
    return 0 if row is None else int(row[0])


async def note_wrong(tx: Transaction, sender: Identity, *, at_ms: int, since_ms: int) -> None:
    """Counts a wrong code; counting begins anew after `since_ms`."""
    await tx.execute("DELETE FROM wrong_codes WHERE since <= ?", (since_ms,))
    await tx.execute(
        "INSERT INTO wrong_codes (channel, account, platform_id, count, since) VALUES (?, ?, ?, 1, ?) "
        "ON CONFLICT (channel, account, platform_id) DO UPDATE SET count = wrong_codes.count + 1, "
        "since = excluded.since",
        (*_values(sender), at_ms),
    )


def _values(sender: Identity) -> tuple[str, str, str]:
    return sender.channel, sender.account, sender.platform_id
