"""Rows of the sessions that external harnesses keep by themselves."""

from antiphon.domain.ids import AgentId, RunId, SessionId, SessionRow
from antiphon.domain.native_record import NativeRecord
from antiphon.store.database import Query, Transaction


async def find(query: Query, incarnation: SessionId) -> NativeRecord | None:
    row = await query.fetch_one(
        "SELECT agent_id, native_id, seen_seq, run FROM native_sessions WHERE incarnation = ?", (incarnation,)
    )
    if row is None:
        return None
    agent_id, native_id, seen_seq, run = row
    return NativeRecord(
        incarnation=incarnation,
        agent_id=AgentId(agent_id),
        native_id=native_id,
        seen_seq=seen_seq,
        run=RunId(run),
    )


async def put(tx: Transaction, session: SessionRow, native: NativeRecord) -> None:
    """Stores what is now behind the incarnation."""
    await tx.execute(
        "INSERT INTO native_sessions (incarnation, session, agent_id, native_id, seen_seq, run) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (incarnation) DO UPDATE SET agent_id = excluded.agent_id, "
        "native_id = excluded.native_id, seen_seq = excluded.seen_seq, run = excluded.run",
        (native.incarnation, session, native.agent_id, native.native_id, native.seen_seq, native.run),
    )


async def delete_of_session(tx: Transaction, session: SessionRow) -> None:
    await tx.execute("DELETE FROM native_sessions WHERE session = ?", (session,))
