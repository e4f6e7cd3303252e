"""What platforms call chats, stored once at the place for all sessions that speak there. Contract: list 2."""

from antiphon.domain.ids import SessionRow
from antiphon.domain.session import DEFAULT_ACCOUNT, DeliveryContext
from antiphon.store.database import Query, Transaction
from antiphon.store.names import fold


async def put(tx: Transaction, place: DeliveryContext, name: str) -> None:
    """Stores what the chat is called now. Lists that show one of its sessions are told if that has changed."""
    channel, account, address = _key(place)
    changed = await tx.change(
        "INSERT INTO chat_names (channel, account, address, name, folded_name) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (channel, account, address) DO UPDATE SET name = excluded.name, "
        "folded_name = excluded.folded_name WHERE chat_names.name <> excluded.name",
        (channel, account, address, name, fold(name)),
    )
    if not changed:
        return
    found = await tx.fetch_all(
        "SELECT id FROM sessions WHERE delivery_channel = ? AND delivery_to = ? "
        f"AND COALESCE(delivery_account_id, '{DEFAULT_ACCOUNT}') = ? AND deleted_at IS NULL",
        (channel, address, account),
    )
    for (session,) in found:
        tx.wake(SessionRow(session))


async def find(query: Query, place: DeliveryContext) -> str | None:
    """What the chat is called, if the platform said so."""
    row = await query.fetch_one(
        "SELECT name FROM chat_names WHERE channel = ? AND account = ? AND address = ?", _key(place)
    )
    return None if row is None else row[0]


async def move(tx: Transaction, place: DeliveryContext, address: str) -> None:
    """Gives the name to the chat's new address, unless that has one already."""
    channel, account, old = _key(place)
    await tx.execute(
        "INSERT INTO chat_names (channel, account, address, name, folded_name) SELECT channel, account, "
        "CAST(? AS TEXT), name, folded_name FROM chat_names WHERE channel = ? AND account = ? AND address = ? "
        "ON CONFLICT DO NOTHING",
        (address, channel, account, old),
    )
    await tx.execute(
        "DELETE FROM chat_names WHERE channel = ? AND account = ? AND address = ?", (channel, account, old)
    )


def _key(place: DeliveryContext) -> tuple[str, str, str]:
    assert place.channel is not None and place.to is not None
    return place.channel, place.account_id or DEFAULT_ACCOUNT, place.to
