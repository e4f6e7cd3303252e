"""Rows of calls from outside a run that run once. `domain/call` says which may run."""

from datetime import timedelta

from antiphon.domain.call import OutsideCall
from antiphon.domain.ids import ApprovalId, SessionRow
from antiphon.store import codec
from antiphon.store.claims import Claims
from antiphon.store.database import Query, Transaction
from antiphon.store.select_list import Combined, SelectList

KEPT = timedelta(days=7)
"""How long a repeated call that needed no request gets the first answer; others go with their session."""
APPROVED = SessionRow(-3)
"""Woken when a call was approved."""

CLAIMS = Claims("calls", "id", "COALESCE(begun_by, '')", held="is_due = 1")
_CALL = SelectList(
    OutsideCall,
    "k.id, k.session, k.approval, k.sha256, k.is_due, k.begun_at, k.begun_by, k.outcome, "
    "k.level, k.compartments, k.integrity, k.person",
    is_due=bool,
    begun_at=codec.moment,
    made_of=Combined(
        codec.classification, level="level", compartments="compartments", integrity="integrity", person="person"
    ),
)
_SELECT = f"SELECT {_CALL.text} FROM calls k"


async def insert(tx: Transaction, call: OutsideCall, origin: str) -> None:
    await tx.execute(
        "INSERT INTO calls (id, origin, session, approval, sha256, is_due, begun_at, begun_by) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            call.id,
            origin,
            call.session,
            call.approval,
            call.sha256,
            int(call.is_due),
            None if call.begun_at is None else codec.milliseconds(call.begun_at),
            call.begun_by,
        ),
    )


async def find(query: Query, id: str) -> OutsideCall | None:
    row = await query.fetch_one(f"{_SELECT} WHERE k.id = ?", (id,))
    return None if row is None else _CALL.read(row)


async def find_by_origin(query: Query, origin: str) -> OutsideCall | None:
    row = await query.fetch_one(f"{_SELECT} WHERE k.origin = ?", (origin,))
    return None if row is None else _CALL.read(row)


async def forget_origin(tx: Transaction, origin: str) -> None:
    """The same call begins anew from now on. The row of one that joined a request goes; a request's own stays."""
    await tx.execute("DELETE FROM calls WHERE origin = ? AND id <> approval", (origin,))
    await tx.execute("UPDATE calls SET origin = NULL WHERE origin = ?", (origin,))


async def make_due(tx: Transaction, approval: ApprovalId) -> None:
    """The call that asked may run now."""
    await tx.execute("UPDATE calls SET is_due = 1 WHERE id = ?", (approval,))
    tx.wake(APPROVED)


async def store_outcome(tx: Transaction, call: OutsideCall) -> None:
    """Does nothing if the call has an outcome, was begun again, or was deleted with its session."""
    values = codec.classification_values(call.made_of)
    columns = "is_due = 0, outcome = ?, level = ?, compartments = ?, integrity = ?, person = ?"
    await CLAIMS.change(tx, call.claim, columns, call.outcome, *values)


async def delete_of_session(tx: Transaction, session: SessionRow) -> None:
    await tx.execute("DELETE FROM calls WHERE session = ?", (session,))


async def delete_before(tx: Transaction, before_ms: int, limit: int) -> int:
    """Deletes calls without a request that began earlier and are over; returns how many.

    Others may be under way: the clock may have jumped.
    """
    return await tx.change(
        "DELETE FROM calls WHERE id IN "
        "(SELECT k.id FROM calls k WHERE k.begun_at < ? AND k.approval IS NULL AND k.is_due = 0 LIMIT ?)",
        (before_ms, limit),
    )
