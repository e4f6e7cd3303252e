"""Reading whole logs, as nobody outside may."""

from antiphon.domain.event import Event
from antiphon.domain.ids import SessionRow
from antiphon.policy.system import system_grant
from antiphon.store import events as log
from antiphon.store.database import Query

EVERYTHING = 2**40
"""Events, and bytes of them."""


async def whole_log(query: Query, session: SessionRow) -> list[Event]:
    """Every event that is stored of the session, of all incarnations."""
    return (await log.read_stretch(query, system_grant(session), 0, limit=EVERYTHING, max_bytes=EVERYTHING)).events
