"""The home key, stored in the database for all processes."""

from antiphon.store.database import Query, Transaction

_ID = 1


async def find(query: Query) -> str | None:
    """The home key in hexadecimal digits; None before its first use."""
    row = await query.fetch_one("SELECT secret FROM home_keys WHERE id = ?", (_ID,))
    return None if row is None else row[0]


async def keep(tx: Transaction, secret: str) -> str:
    """Stores the home key if there is none; returns the stored one."""
    await tx.change("INSERT INTO home_keys (id, secret) VALUES (?, ?) ON CONFLICT (id) DO NOTHING", (_ID, secret))
    found = await find(tx)
    assert found is not None
    return found
