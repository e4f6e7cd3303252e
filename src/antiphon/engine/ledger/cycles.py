"""Detects waits that would never end. Contract: send 7."""

from antiphon.domain.ids import SessionRow
from antiphon.store import runs as ledger
from antiphon.store.database import Query


async def waits_for(query: Query, session: SessionRow, caller: SessionRow) -> bool:
    """Whether the session waits for the caller's, directly or through others. Contract: send 7."""
    seen, frontier = {session}, [session]
    while frontier:
        awaited = await ledger.list_awaited_sessions(query, frontier.pop())
        if caller in awaited:
            return True
        frontier += [other for other in awaited if other not in seen]
        seen.update(awaited)
    return False
