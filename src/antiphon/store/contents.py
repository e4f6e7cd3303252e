"""What a session holds, which its deletion takes away."""

from msgspec import Struct

from antiphon.policy.reach import Grant, Reach
from antiphon.store.database import Query
from antiphon.store.scopes import flow, within

MAX_COUNTED = 1000
"""Messages, runs and texts are counted up to here, so that the cost is bounded."""


class SessionContents(Struct, frozen=True, kw_only=True):
    """How much a session holds. Numbers of `MAX_COUNTED` mean at least so many."""

    messages: int
    """Messages of people and models in all its conversations that the reader may read."""
    runs: int
    conversations: int
    """Earlier conversations; the present one does not count."""
    children: int
    """Sessions that it spawned. They stay when it is deleted."""
    unsent_texts: int
    """Texts for its channel that were not sent yet."""


async def count_contents(query: Query, grant: Grant, reach: Reach) -> SessionContents:
    """What the grant's session holds; counts only children in the reach."""
    session, seen = grant.session, await within(query, reach, "s.id")
    readable, sendable = flow("e.", grant.clearance), flow("d.", grant.clearance)
    row = await query.fetch_one(
        "SELECT (SELECT COUNT(*) FROM (SELECT 1 FROM events e WHERE e.session = ? "
        f"AND e.role IN ('user', 'assistant') AND {readable.text} LIMIT {MAX_COUNTED}) m), "
        f"(SELECT COUNT(*) FROM (SELECT 1 FROM runs r WHERE r.session = ? LIMIT {MAX_COUNTED}) n), "
        f"(SELECT COUNT(*) FROM (SELECT 1 FROM incarnations i WHERE i.session = ? AND i.last_seq IS NOT NULL "
        f"LIMIT {MAX_COUNTED}) c), "
        f"(SELECT COUNT(*) FROM (SELECT 1 FROM sessions s WHERE s.parent = ? AND s.deleted_at IS NULL AND {seen.text} "
        f"LIMIT {MAX_COUNTED}) k), "
        "(SELECT COUNT(*) FROM (SELECT 1 FROM deliveries d WHERE d.session = ? "
        f"AND d.status IN ('queued', 'claimed', 'dead') AND {sendable.text} LIMIT {MAX_COUNTED}) t)",
        (session, *readable.values, *[session] * 3, *seen.values, session, *sendable.values),
    )
    assert row is not None
    messages, runs, conversations, children, unsent = row
    return SessionContents(
        messages=messages, runs=runs, conversations=conversations, children=children, unsent_texts=unsent
    )
