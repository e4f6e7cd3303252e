"""How far each account of a channel was read, and each of its chats."""

from antiphon.store.channel_accounts import AccountName
from antiphon.store.database import Query, Transaction

WHOLE = ""
"""In place of the chat: the position counts for the account."""


async def find(query: Query, name: AccountName, chat: str = WHOLE) -> str | None:
    row = await query.fetch_one(
        "SELECT position FROM channel_positions WHERE channel = ? AND account = ? AND chat = ?", (*name, chat)
    )
    return None if row is None else row[0]


async def put(tx: Transaction, name: AccountName, chat: str, position: str) -> None:
    await tx.execute(
        "INSERT INTO channel_positions (channel, account, chat, position) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (channel, account, chat) DO UPDATE SET position = excluded.position",
        (*name, chat, position),
    )


async def list_chats(query: Query, name: AccountName) -> dict[str, str]:
    """The positions of the account's chats, by chat."""
    found = await query.fetch_all(
        "SELECT chat, position FROM channel_positions WHERE channel = ? AND account = ? AND chat <> ? ORDER BY chat",
        (*name, WHOLE),
    )
    return dict[str, str](found)
