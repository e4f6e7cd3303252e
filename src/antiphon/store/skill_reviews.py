"""Rows of what owners decided about skills."""

from antiphon.domain.actor import Principal
from antiphon.domain.skill import ReviewedSkill, SkillReview
from antiphon.store import codec
from antiphon.store.database import Query, Transaction

_COLUMNS = "s.name, s.sha256, s.is_trusted, s.reviewed_at, s.reviewed_by"
_OF_OWNERS = (
    "JOIN people p ON p.id = substr(s.reviewed_by, 8) JOIN people q ON q.id = COALESCE(p.merged_into, p.id) "
    "WHERE q.role = 'owner' AND q.is_suspended = 0"
)
"""Only what somebody decided who still is an owner; the principal's text is `person:` with the id."""


async def list_in_force(query: Query) -> list[SkillReview]:
    """What counts now, by name."""
    rows = await query.fetch_all(f"SELECT {_COLUMNS} FROM skill_reviews s {_OF_OWNERS} ORDER BY s.name")
    return [
        SkillReview(
            name=name,
            sha256=sha256,
            is_trusted=bool(is_trusted),
            reviewed_at=codec.moment(reviewed_at),
            reviewed_by=codec.stored_principal(reviewed_by),
        )
        for name, sha256, is_trusted, reviewed_at, reviewed_by in rows
    ]


async def put(tx: Transaction, seen: ReviewedSkill, by: Principal) -> None:
    await tx.execute(
        "INSERT INTO skill_reviews (name, sha256, is_trusted, reviewed_at, reviewed_by) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (name) DO UPDATE SET sha256 = excluded.sha256, is_trusted = excluded.is_trusted, "
        "reviewed_at = excluded.reviewed_at, reviewed_by = excluded.reviewed_by",
        (seen.name, seen.sha256, int(seen.is_trusted), tx.now_ms, str(by)),
    )


async def delete(tx: Transaction, name: str) -> bool:
    """Whether there was one."""
    return await tx.change("DELETE FROM skill_reviews WHERE name = ?", (name,)) > 0
