"""Rows of the outbox."""

from antiphon.domain.delivery import Delivery, DeliveryStatus
from antiphon.domain.ids import RunId, SessionId, SessionRow
from antiphon.domain.session import DeliveryContext
from antiphon.store import codec
from antiphon.store.database import Query, Row, Transaction

_COLUMNS = (
    "d.id, d.session, s.key, d.incarnation, d.run_id, d.channel, d.recipient, d.account_id, d.thread_id, d.text, "
    "d.status, d.attempts, d.due_at, d.error, d.code, d.created_at, d.ended_at"
)
_SELECT = f"SELECT {_COLUMNS} FROM deliveries d JOIN sessions s ON s.id = d.session"


async def insert(
    tx: Transaction,
    *,
    id: str,
    session: SessionRow,
    incarnation: SessionId,
    run_id: RunId | None,
    place: DeliveryContext,
    text: str,
    at_ms: int,
) -> None:
    """Queues a text for the place, due at once."""
    await tx.execute(
        "INSERT INTO deliveries (id, session, incarnation, run_id, channel, recipient, account_id, thread_id, text, "
        "status, due_at, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'queued', ?, ?)",
        (
            id,
            session,
            incarnation,
            run_id,
            place.channel,
            place.to,
            place.account_id,
            place.thread_id,
            text,
            at_ms,
            at_ms,
        ),
    )


async def find(query: Query, id: str) -> Delivery | None:
    row = await query.fetch_one(f"{_SELECT} WHERE d.id = ?", (id,))
    return None if row is None else _delivery(row)


async def list_all(query: Query, limit: int) -> list[Delivery]:
    """The newest, newest first."""
    return [_delivery(row) for row in await query.fetch_all(f"{_SELECT} ORDER BY d.id DESC LIMIT ?", (limit,))]


async def delete_all(tx: Transaction, session: SessionRow) -> None:
    """Forgets what a deleted session sent, and what it was still to send."""
    await tx.execute("DELETE FROM deliveries WHERE session = ?", (session,))


def _delivery(row: Row) -> Delivery:
    return Delivery(
        id=row[0],
        session=row[1],
        session_key=row[2],
        session_id=row[3],
        run_id=row[4],
        place=DeliveryContext(channel=row[5], to=row[6], account_id=row[7], thread_id=row[8]),
        text=row[9],
        status=DeliveryStatus(row[10]),
        attempts=row[11],
        due_at=codec.moment(row[12]),
        error=row[13],
        code=row[14],
        created_at=codec.moment(row[15]),
        ended_at=codec.optional_moment(row[16]),
    )
