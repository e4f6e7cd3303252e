"""Accounts of channels: which process serves each."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from antiphon.domain.ids import ProcessId
from antiphon.store.claims import Claim, Claims, is_left
from antiphon.store.database import Query, Transaction

_NAMED = "channel = ? AND account = ?"
_IS_FREE = (
    "(process IS NULL OR process = ? OR served_until <= ? OR served_until > ? "
    f"OR {is_left('channel_accounts.process')})"
)
CLAIMS = Claims("channel_accounts", "channel", "account", "fence", held="process IS NOT NULL")


class AccountName(NamedTuple):
    channel: str
    account: str


class LeaseRequest(NamedTuple):
    """A process asks to serve an account, which is free when its time is over, when its process is gone or is this one,
    and also when its time ends later than any process would set it now: then a clock was set back."""

    name: AccountName
    process: ProcessId
    now_ms: int
    served_until_ms: int


class AccountRow(NamedTuple):
    channel: str
    account: str
    platform_id: str | None
    name: str | None
    process: str | None
    served_until_ms: int
    trouble: str | None


async def take(tx: Transaction, request: LeaseRequest) -> int | None:
    """The new fence, if the account is free; None if another process serves it."""
    name, process, now_ms, served_until_ms = request
    await tx.execute("INSERT INTO channel_accounts (channel, account) VALUES (?, ?) ON CONFLICT DO NOTHING", name)
    row = await tx.fetch_one(
        f"UPDATE channel_accounts SET process = ?, served_until = ?, fence = fence + 1 WHERE {_NAMED} AND {_IS_FREE} "
        "RETURNING fence",
        (process, served_until_ms, *name, process, now_ms, served_until_ms),
    )
    return None if row is None else row[0]


async def list_served(query: Query, requests: Sequence[LeaseRequest]) -> set[AccountName]:
    """Those of the accounts that other processes serve. One statement; all are asked for at the same moment."""
    process, now_ms, served_until_ms = requests[0][1:]
    is_one = " OR ".join([f"({_NAMED})"] * len(requests))
    rows = await query.fetch_all(
        f"SELECT channel, account FROM channel_accounts WHERE ({is_one}) AND NOT {_IS_FREE}",
        (*(part for request in requests for part in request.name), process, now_ms, served_until_ms),
    )
    return {AccountName(*row) for row in rows}


async def extend_all(tx: Transaction, claims: Collection[Claim], served_until_ms: int) -> set[Claim]:
    """Those of the claims that are still the newest; their accounts are served until that time."""
    return await CLAIMS.write_all(tx, claims, {"served_until": served_until_ms})


async def release(tx: Transaction, claim: Claim) -> None:
    """Frees the account, unless another process has taken it."""
    await CLAIMS.write(tx, claim, {"process": None, "served_until": 0})


async def keep(tx: Transaction, claim: Claim) -> bool:
    """Whether the claim is still the newest; then no other process takes the account until the unit commits."""
    return await CLAIMS.change(tx, claim, "fence = fence")


async def find_name(query: Query, name: AccountName) -> str | None:
    """The name of the account on its platform, as far as it is known."""
    row = await query.fetch_one(f"SELECT name FROM channel_accounts WHERE {_NAMED}", name)
    return None if row is None else row[0]


async def set_name(tx: Transaction, claim: Claim, platform_id: str, name: str) -> None:
    await CLAIMS.write(tx, claim, {"platform_id": platform_id, "name": name})


async def set_trouble(tx: Transaction, name: AccountName, trouble: str | None) -> None:
    await tx.execute(
        "INSERT INTO channel_accounts (channel, account, trouble) VALUES (?, ?, ?) "
        "ON CONFLICT (channel, account) DO UPDATE SET trouble = excluded.trouble",
        (*name, trouble),
    )


async def list_all(query: Query) -> list[AccountRow]:
    """All accounts, by channel and name."""
    found = await query.fetch_all(
        "SELECT channel, account, platform_id, name, process, served_until, trouble "
        "FROM channel_accounts ORDER BY channel, account"
    )
    return [AccountRow(*row) for row in found]


async def lock(tx: Transaction, name: AccountName) -> None:
    """Like `keep`, for an account that no process has to serve: its platform posts to the gateway."""
    await tx.execute(
        "INSERT INTO channel_accounts (channel, account) VALUES (?, ?) "
        "ON CONFLICT (channel, account) DO UPDATE SET fence = channel_accounts.fence",
        name,
    )
