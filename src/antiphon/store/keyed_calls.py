"""Rows of calls from outside a run that have an `Idempotency-Key` and needed no request for approval."""

from datetime import timedelta

from antiphon.domain.idempotency import KeyedCall
from antiphon.domain.ids import SessionRow
from antiphon.store import codec
from antiphon.store.claims import Claims
from antiphon.store.database import Query, Transaction
from antiphon.store.select_list import Combined, SelectList

KEPT = timedelta(days=7)
"""How long a repeated call gets the first answer."""

CLAIMS = Claims("keyed_calls", "id", "begun_by", held="outcome IS NULL")
_CALL = SelectList(
    KeyedCall,
    "k.id, k.session, k.sha256, k.begun_at, k.begun_by, k.outcome, k.level, k.compartments, k.integrity, k.person",
    begun_at=codec.moment,
    made_of=Combined(
        codec.classification, level="level", compartments="compartments", integrity="integrity", person="person"
    ),
)
_SELECT = f"SELECT {_CALL.text} FROM keyed_calls k"


async def insert(tx: Transaction, call: KeyedCall, origin: str) -> None:
    await tx.execute(
        "INSERT INTO keyed_calls (id, origin, session, sha256, begun_at, begun_by) VALUES (?, ?, ?, ?, ?, ?)",
        (call.id, origin, call.session, call.sha256, codec.milliseconds(call.begun_at), call.begun_by),
    )


async def find(query: Query, id: str) -> KeyedCall | None:
    row = await query.fetch_one(f"{_SELECT} WHERE k.id = ?", (id,))
    return None if row is None else _CALL.read(row)


async def find_by_origin(query: Query, origin: str) -> KeyedCall | None:
    row = await query.fetch_one(f"{_SELECT} WHERE k.origin = ?", (origin,))
    return None if row is None else _CALL.read(row)


async def store_outcome(tx: Transaction, call: KeyedCall) -> None:
    """Does nothing if the call has an outcome, or was deleted with its session."""
    values = codec.classification_values(call.made_of)
    columns = "outcome = ?, level = ?, compartments = ?, integrity = ?, person = ?"
    await CLAIMS.change(tx, (call.id, call.begun_by), columns, call.outcome, *values)


async def delete_of_session(tx: Transaction, session: SessionRow) -> None:
    await tx.execute("DELETE FROM keyed_calls WHERE session = ?", (session,))


async def delete_before(tx: Transaction, before_ms: int, limit: int) -> int:
    """Deletes calls with an outcome that began earlier; returns how many.

    Others may be under way: the clock may have jumped.
    """
    return await tx.change(
        "DELETE FROM keyed_calls WHERE id IN "
        "(SELECT k.id FROM keyed_calls k WHERE k.begun_at < ? AND k.outcome IS NOT NULL LIMIT ?)",
        (before_ms, limit),
    )
