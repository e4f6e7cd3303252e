"""The table of compartments: names and their bits, which are never used again. Contract: flow 1."""

from antiphon.domain.classification import Compartments
from antiphon.store.database import Query, Transaction


async def read_compartments(query: Query) -> Compartments:
    rows = await query.fetch_all("SELECT name, is_retired FROM compartments ORDER BY bit")
    return Compartments(tuple(name for name, _ in rows), frozenset(name for name, is_retired in rows if is_retired))


async def insert(tx: Transaction, compartments: Compartments, name: str, at_ms: int) -> bool:
    """Stores the newest of the compartments; False if another process has given its bit meanwhile."""
    added = await tx.change(
        "INSERT INTO compartments (bit, name, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (compartments.names.index(name), name, at_ms),
    )
    return added == 1
