"""Logs that are being copied in pages into sessions that nobody sees yet. Contract: sessions 8."""

from antiphon.domain.ids import ProcessId, SessionRow
from antiphon.store.claims import Claim, Claims, is_left
from antiphon.store.database import Query, Transaction

ROWS_AT_ONCE = 64
CLAIMS = Claims("copies_under_way", "session", "process")
_IS_FREE = f"(process = ? OR {is_left('process')})"


async def begin(tx: Transaction, session: SessionRow, process: ProcessId) -> None:
    await tx.execute("INSERT INTO copies_under_way (session, process, last_seq) VALUES (?, ?, 0)", (session, process))


async def advance(tx: Transaction, claim: Claim, last_seq: int) -> bool:
    """Notes how far the copy is; False if it was given up. No other unit goes on with it until this one commits."""
    return await CLAIMS.write(tx, claim, {"last_seq": last_seq})


async def hold(tx: Transaction, claim: Claim) -> bool:
    """Like `advance`, where the copy is."""
    return await CLAIMS.change(tx, claim, "last_seq = last_seq")


async def take(tx: Transaction, session: SessionRow, process: ProcessId) -> bool:
    """Makes the copy the process's, to remove it; False if a living one works on it, or if it does not exist."""
    statement = f"UPDATE copies_under_way SET process = ? WHERE session = ? AND {_IS_FREE}"
    return await tx.change(statement, (process, session, process)) == 1


async def uncount(tx: Transaction, session: SessionRow) -> None:
    """Takes the session and its bytes off the share of who makes the copy."""
    await tx.execute("DELETE FROM participants WHERE session = ?", (session,))


async def end(tx: Transaction, session: SessionRow) -> None:
    """The session has its log."""
    await tx.execute("DELETE FROM copies_under_way WHERE session = ?", (session,))


async def remove_page(tx: Transaction, session: SessionRow, max_bytes: int) -> bool:
    """Removes about so many bytes of a copy that is given up, and in the end its row; whether there is more."""
    await uncount(tx, session)
    rows = await tx.fetch_all(
        "SELECT seq, LENGTH(payload) FROM events WHERE session = ? ORDER BY seq LIMIT ?", (session, ROWS_AT_ONCE)
    )
    if not rows:
        await end(tx, session)
        return False
    size, last = 0, 0
    for seq, length in rows:
        size, last = size + length, seq
        if size >= max_bytes:
            break
    await tx.execute("DELETE FROM events WHERE session = ? AND seq <= ?", (session, last))
    return True


async def list_left(query: Query, process: ProcessId) -> list[SessionRow]:
    """Copies of this process, and of processes that do not live any more."""
    rows = await query.fetch_all(f"SELECT session FROM copies_under_way WHERE {_IS_FREE} ORDER BY session", (process,))
    return [session for (session,) in rows]
