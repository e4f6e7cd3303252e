"""Groups of channels: whether an owner has allowed the bot to answer there. Contract: groups 1."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from antiphon.domain.session import DeliveryContext
from antiphon.policy.sinks import GroupName
from antiphon.store import codec
from antiphon.store.database import Query, Transaction
from antiphon.store.deliveries import PLACES
from antiphon.store.select_list import SelectList


class GroupState(StrEnum):
    ASKED = "asked"
    """Owners were asked, and have not answered."""
    ALLOWED = "allowed"
    REFUSED = "refused"
    LEFT = "left"
    """The bot is not in it any more."""


class ChannelGroup(Struct, frozen=True, kw_only=True):
    channel: str
    account: str
    group_id: str
    """Names it in keys and routes, and stays if the group moves."""
    address: str
    """The platform's present id."""
    title: str
    """What its members call it now, as far as the bot has heard."""
    state: GroupState
    added_by: str | None = None
    """Who added the bot, by the platform's id."""
    decided_by: str | None = None
    decided_at: datetime | None = None
    created_at: datetime
    known_title: str | None = None
    """What it was called when owners were asked about it or the bot came there, or as an owner has named it since."""

    @property
    def is_asking(self) -> bool:
        """Whether owners were asked about it, and have not answered."""
        return self.state is GroupState.ASKED


_GROUP = SelectList(
    ChannelGroup,
    "g.channel, g.account, g.group_id, g.address, g.state, g.added_by, g.decided_by, g.decided_at, g.created_at, "
    "g.title AS known_title, COALESCE((SELECT c.name FROM chat_names c WHERE c.channel = g.channel "
    "AND c.account = g.account AND c.address = g.address), g.title) AS title",
    state=codec.member_of(GroupState),
    decided_at=codec.optional_moment,
    created_at=codec.moment,
)
_SELECT = f"SELECT {_GROUP.text} FROM groups_of_channels g"
_ACCOUNT = "channel = ? AND account = ?"


async def find_by_address(query: Query, channel: str, account: str, address: str) -> ChannelGroup | None:
    row = await query.fetch_one(f"{_SELECT} WHERE {_ACCOUNT} AND address = ?", (channel, account, address))
    return None if row is None else _GROUP.read(row)


async def find(query: Query, channel: str, account: str, group_id: str) -> ChannelGroup | None:
    row = await query.fetch_one(f"{_SELECT} WHERE {_ACCOUNT} AND group_id = ?", (channel, account, group_id))
    return None if row is None else _GROUP.read(row)


async def list_all(query: Query) -> list[ChannelGroup]:
    found = await query.fetch_all(f"{_SELECT} ORDER BY channel, account, created_at, group_id")
    return [_GROUP.read(row) for row in found]


async def count_asked(query: Query, channel: str, account: str) -> int:
    row = await query.fetch_one(
        f"SELECT COUNT(*) FROM groups_of_channels WHERE {_ACCOUNT} AND state = 'asked'", (channel, account)
    )
    assert row is not None
    return int(row[0])


async def insert(tx: Transaction, group: ChannelGroup) -> None:
    await tx.execute(
        "INSERT INTO groups_of_channels (channel, account, group_id, address, title, state, added_by, created_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            group.channel,
            group.account,
            group.group_id,
            group.address,
            group.title,
            group.state.value,
            group.added_by,
            codec.milliseconds(group.created_at),
        ),
    )


async def set_state(
    tx: Transaction, group: ChannelGroup, state: GroupState, *, by: str | None = None, at_ms: int | None = None
) -> None:
    await tx.execute(
        f"UPDATE groups_of_channels SET state = ?, decided_by = ?, decided_at = ? WHERE {_ACCOUNT} AND group_id = ?",
        (state.value, by, at_ms, group.channel, group.account, group.group_id),
    )
    tx.wake(PLACES)


async def set_title(tx: Transaction, group: ChannelGroup, title: str) -> None:
    await tx.execute(
        f"UPDATE groups_of_channels SET title = ? WHERE {_ACCOUNT} AND group_id = ?",
        (title, group.channel, group.account, group.group_id),
    )


async def move(tx: Transaction, group: ChannelGroup, address: str) -> None:
    """Gives the group its new id on the platform; a row that stands for that id already is the same group."""
    await tx.execute(
        f"DELETE FROM groups_of_channels WHERE {_ACCOUNT} AND address = ? AND group_id <> ?",
        (group.channel, group.account, address, group.group_id),
    )
    await tx.execute(
        f"UPDATE groups_of_channels SET address = ? WHERE {_ACCOUNT} AND group_id = ?",
        (address, group.channel, group.account, group.group_id),
    )
    await tx.execute(
        "INSERT INTO met_in_groups (channel, account, group_id, platform_id) SELECT channel, account, CAST(? AS TEXT), "
        f"platform_id FROM met_in_groups WHERE {_ACCOUNT} AND group_id = ? ON CONFLICT DO NOTHING",
        (group.group_id, group.channel, group.account, address),
    )


async def move_answers(tx: Transaction, group: ChannelGroup, new_address: str) -> None:
    """Sends what is still to be said at the group's address to the new one: of sessions, waiting texts and runs.

    A message that shows a reply while it is written stays where it is; the platform does not move it.
    """
    channel, account, address = group.channel, group.account, group.address
    found = await tx.fetch_all(
        "SELECT id FROM sessions WHERE delivery_channel = ? AND delivery_to = ? "
        "AND COALESCE(delivery_account_id, 'default') = ?",
        (channel, address, account),
    )
    tx.hold(*(row for (row,) in found))
    for (row,) in found:
        await tx.execute("UPDATE sessions SET delivery_to = ? WHERE id = ?", (new_address, row))
    await tx.execute(
        "UPDATE deliveries SET recipient = ? WHERE channel = ? AND recipient = ? "
        "AND COALESCE(account_id, 'default') = ? AND status IN ('queued', 'claimed')",
        (new_address, channel, address, account),
    )
    old, new = (DeliveryContext(channel=channel, to=to, account_id=account) for to in (address, new_address))
    await tx.execute(
        "UPDATE runs SET place = ? WHERE place = ? AND status IN ('queued', 'running', 'awaiting_approval')",
        (codec.place_text(new), codec.place_text(old)),
    )
    tx.wake(PLACES)


async def insert_met(tx: Transaction, group: GroupName, platform_id: str) -> None:
    """Notes that the account was met in the group; may be called twice."""
    statement = (
        "INSERT INTO met_in_groups (channel, account, group_id, platform_id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
    )
    if await tx.change(statement, (*group, platform_id)):
        tx.wake(PLACES)


async def list_met(query: Query, group: GroupName) -> list[str]:
    """The accounts that were met in the group, by the platform's ids."""
    rows = await query.fetch_all(
        "SELECT platform_id FROM met_in_groups WHERE channel = ? AND account = ? AND group_id = ?", group
    )
    return [platform_id for (platform_id,) in rows]


async def delete_met(tx: Transaction, group: GroupName, platform_id: str) -> None:
    """Forgets that the account was met in the group."""
    await tx.execute(
        f"DELETE FROM met_in_groups WHERE {_ACCOUNT} AND group_id = ? AND platform_id = ?", (*group, platform_id)
    )
    tx.wake(PLACES)
