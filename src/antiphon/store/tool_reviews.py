"""Rows of reviews of tools that others wrote."""

from collections.abc import Collection

from antiphon.domain.actor import Principal
from antiphon.domain.agent import Effect
from antiphon.domain.tool_review import ConfirmedTool, ToolReview
from antiphon.store import codec
from antiphon.store.database import Query, Transaction

_OF_OWNERS = (
    "JOIN people p ON p.id = substr(t.reviewed_by, 8) JOIN people q ON q.id = COALESCE(p.merged_into, p.id) "
    "WHERE q.role = 'owner' AND q.is_suspended = 0"
)
"""Only what somebody confirmed who still is an owner; the principal's text is `person:` with the id."""


async def list_of(query: Query, sources: Collection[str]) -> list[ConfirmedTool]:
    """All that counts as confirmed of tools of these sources, as they are or were."""
    marks = ", ".join("?" * len(sources))
    rows = await query.fetch_all(
        f"SELECT t.sha256, t.source, t.tool, t.effects FROM tool_reviews t {_OF_OWNERS} AND t.source IN ({marks}) "
        "ORDER BY t.sha256",
        [*sources],
    )
    return [_confirmed(*row) for row in rows]


async def list_all(query: Query) -> list[ToolReview]:
    rows = await query.fetch_all(
        "SELECT sha256, source, tool, effects, reviewed_at, reviewed_by FROM tool_reviews "
        "ORDER BY source, tool, reviewed_at, sha256"
    )
    return [
        ToolReview(
            confirmed=_confirmed(sha256, source, tool, effects),
            reviewed_at=codec.moment(reviewed_at),
            reviewed_by=codec.stored_principal(reviewed_by),
        )
        for sha256, source, tool, effects, reviewed_at, reviewed_by in rows
    ]


async def put(tx: Transaction, confirmed: ConfirmedTool, by: Principal) -> None:
    await tx.execute(
        "INSERT INTO tool_reviews (sha256, source, tool, effects, reviewed_at, reviewed_by) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (sha256) DO UPDATE SET effects = excluded.effects, reviewed_at = excluded.reviewed_at, "
        "reviewed_by = excluded.reviewed_by",
        (
            confirmed.sha256,
            confirmed.source,
            confirmed.tool,
            ",".join(sorted(confirmed.effects)),
            tx.now_ms,
            str(by),
        ),
    )


async def delete_of(tx: Transaction, source: str) -> int:
    """How many were deleted."""
    return await tx.change("DELETE FROM tool_reviews WHERE source = ?", (source,))


def _confirmed(sha256: str, source: str, tool: str, effects: str) -> ConfirmedTool:
    found = frozenset(Effect(each) for each in effects.split(","))
    return ConfirmedTool(sha256=sha256, source=source, tool=tool, effects=found)
