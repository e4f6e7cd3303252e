"""The origins of calls from outside a run: session, caller and the call's own name."""

from antiphon.store.database import Query, Transaction

_SESSIONS = (
    ("exchanges", "exchanges.requester"),
    ("spawns", "(SELECT s.parent FROM sessions s WHERE s.id = spawns.child)"),
    ("calls", "calls.session"),
)
"""The tables that hold origins, with the session that called."""
_KINDS = ("", "same:")
"""What stands before the caller: nothing for a call with an `Idempotency-Key`, and a word for one without."""


async def merge(tx: Transaction, old: str, new: str) -> None:
    """The calls of the one principal are the other's, who gets their first answers for the same keys.

    A key that both have used in one session stays the other's own.
    """
    for table, session in _SESSIONS:
        for kind in _KINDS:
            await _rename(tx, table, session, old=f":{kind}{old}:", new=f":{kind}{new}:")


async def list_of(query: Query, principal: str) -> list[tuple[str, str]]:
    """The tables and origins of the principal's calls."""
    found: list[tuple[str, str]] = []
    for table, session in _SESSIONS:
        for kind in _KINDS:
            name = f":{kind}{principal}:"
            prefix = f"CAST({session} AS TEXT) || CAST(? AS TEXT)"
            rows = await query.fetch_all(
                f"SELECT {table}.origin FROM {table} WHERE {table}.origin LIKE ? "
                f"AND SUBSTR({table}.origin, 1, LENGTH({prefix})) = {prefix}",
                (f"%{name}%", name, name),
            )
            found += [(table, origin) for (origin,) in rows]
    return found


def renamed(origin: str, *, old: str, new: str) -> str:
    """What `merge` makes of a call's origin."""
    session, _, call = origin.partition(":")
    kind = next(kind for kind in _KINDS if call.startswith(f"{kind}{old}:"))
    return f"{session}:{kind}{new}:{call.removeprefix(f'{kind}{old}:')}"


async def give_back(tx: Transaction, table: str, origin: str, *, old: str, new: str) -> None:
    """Gives a call that `merge` made the other's its former origin."""
    await tx.execute(
        f"UPDATE {table} SET origin = ? WHERE origin = ? AND NOT EXISTS (SELECT 1 FROM {table} o WHERE o.origin = ?)",
        (origin, renamed(origin, old=old, new=new), origin),
    )


async def _rename(tx: Transaction, table: str, session: str, *, old: str, new: str) -> None:
    prefix, origin = f"CAST({session} AS TEXT) || CAST(? AS TEXT)", f"{table}.origin"
    renamed = f"{prefix} || SUBSTR({origin}, LENGTH({prefix}) + 1)"
    await tx.execute(
        f"UPDATE {table} SET origin = {renamed} "
        f"WHERE {origin} LIKE ? AND SUBSTR({origin}, 1, LENGTH({prefix})) = {prefix} "
        f"AND NOT EXISTS (SELECT 1 FROM {table} o WHERE o.origin = {renamed})",
        (new, old, f"%{old}%", old, old, new, old),
    )
