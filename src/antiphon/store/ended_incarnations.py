"""Ended incarnations of a session, newest first, with what begins each."""

from datetime import datetime

from msgspec import Struct

from antiphon.domain.event import Event
from antiphon.domain.ids import SessionId
from antiphon.policy.reach import Grant
from antiphon.store import codec
from antiphon.store.database import Query, Row
from antiphon.store.events import find_events
from antiphon.store.scopes import flow

MAX_COUNTED = 1000
"""Messages that are counted in one incarnation; so the cost of a page is bounded."""


class EndedIncarnation(Struct, frozen=True, kw_only=True):
    """An ended life of a key, as a reader may see it."""

    id: SessionId
    first_seq: int
    """Of its `session_started`."""
    started_at: datetime
    ended_at: datetime
    message_count: int
    """Messages of people and models that the reader may read, at most `MAX_COUNTED`."""
    first_message: Event | None
    """The first message that a model answered, if the reader may read it."""
    is_withheld: bool
    """Whether there is a first message that the reader may not read."""


async def list_ended(query: Query, grant: Grant, *, before: int, limit: int) -> list[EndedIncarnation]:
    """At most `limit` ended incarnations that began before the `seq` `before`, newest first.

    What was pruned is neither counted nor shown. Contract: sessions 6, flow 3.
    """
    assert grant.incarnation is None
    readable = flow("e.", grant.clearance)
    within = (
        "FROM events e WHERE e.session = i.session AND e.seq >= i.first_seq AND e.seq <= i.last_seq "
        "AND e.incarnation = i.id AND e.role"
    )
    # Messages are counted in the incarnations of the page alone, not in all that are sorted for it.
    page = (
        "SELECT id, session, first_seq, last_seq, started_at, ended_at FROM incarnations WHERE session = ? "
        "AND last_seq IS NOT NULL AND first_seq < ? ORDER BY first_seq DESC LIMIT ?"
    )
    rows = await query.fetch_all(
        "SELECT i.id, i.first_seq, i.started_at, i.ended_at, "
        f"(SELECT COUNT(*) FROM (SELECT 1 {within} IN ('user', 'assistant') AND {readable.text} "
        f"LIMIT {MAX_COUNTED}) m), (SELECT e.seq {within} = 'user' ORDER BY e.seq LIMIT 1) "
        f"FROM ({page}) i ORDER BY i.first_seq DESC",
        (*readable.values, grant.session, before, limit),
    )
    first = await find_events(query, grant, [row[-1] for row in rows if row[-1] is not None])
    return [_ended(row, first) for row in rows]


def _ended(row: Row, first: dict[int, Event]) -> EndedIncarnation:
    id, first_seq, started_at, ended_at, count, seq = row
    return EndedIncarnation(
        id=id,
        first_seq=first_seq,
        started_at=codec.moment(started_at),
        ended_at=codec.moment(ended_at),
        message_count=count,
        first_message=first.get(seq),
        is_withheld=seq is not None and seq not in first,
    )
