"""Rows of what owners trust of what sessions have read."""

from collections.abc import Collection

from antiphon.domain.classification import Classification
from antiphon.domain.ids import SessionRow
from antiphon.domain.trusted_content import TrustedContent
from antiphon.store import codec
from antiphon.store.database import Query, SqlValue, Transaction
from antiphon.store.scopes import flow
from antiphon.store.select_list import SelectList

_TRUSTED = SelectList(
    TrustedContent,
    "t.session, s.key AS session_key, t.sha256, t.actor, t.tool, t.first_words, t.approval, t.trusted_at, "
    "t.trusted_by, t.level AS made_of_level, t.compartments AS made_of_compartments, t.person AS made_of_person",
    trusted_at=codec.moment,
    trusted_by=codec.stored_principal,
    made_of=codec.combined_secrecy("made_of"),
)
_FROM = "FROM trusted_content t JOIN sessions s ON s.id = t.session"
_OF_OWNERS = (
    "JOIN people p ON p.id = substr(t.trusted_by, 8) JOIN people q ON q.id = COALESCE(p.merged_into, p.id) "
    "WHERE q.role = 'owner' AND q.is_suspended = 0"
)
"""Only what somebody trusts who still is an owner; the principal's text is `person:` with the id."""


async def insert(tx: Transaction, trusted: TrustedContent) -> None:
    """Does nothing for what is trusted already."""
    level, compartments, _, person = codec.classification_values(trusted.made_of)
    await tx.execute(
        "INSERT INTO trusted_content (session, sha256, actor, tool, first_words, level, compartments, person, "
        "approval, trusted_at, trusted_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (session, sha256) DO NOTHING",
        (
            trusted.session,
            trusted.sha256,
            trusted.actor,
            trusted.tool,
            trusted.first_words,
            level,
            compartments,
            person,
            trusted.approval,
            codec.milliseconds(trusted.trusted_at),
            str(trusted.trusted_by),
        ),
    )


async def list_hashes(query: Query, session: SessionRow) -> frozenset[str]:
    """The content that counts as trusted in the session now."""
    rows = await query.fetch_all(f"SELECT t.sha256 FROM trusted_content t {_OF_OWNERS} AND t.session = ?", (session,))
    return frozenset(row[0] for row in rows)


async def count(query: Query, session: SessionRow, hashes: Collection[str]) -> bool:
    """Whether all of these still count."""
    return not hashes or (await list_hashes(query, session)).issuperset(hashes)


async def list_page(
    query: Query, clearance: Classification, session: SessionRow | None, *, limit: int
) -> list[TrustedContent]:
    """What flows to the clearance, newest first."""
    readable = flow("t.", clearance)
    of, values = ("", list[SqlValue]()) if session is None else (" AND t.session = ?", [session])
    rows = await query.fetch_all(
        f"SELECT {_TRUSTED.text} {_FROM} WHERE ({readable.text}){of} ORDER BY t.trusted_at DESC, t.sha256 LIMIT ?",
        (*readable.values, *values, limit),
    )
    return [_TRUSTED.read(row) for row in rows]


async def find(query: Query, session: SessionRow, sha256: str, clearance: Classification) -> TrustedContent | None:
    """None as well if it does not flow to the clearance."""
    readable = flow("t.", clearance)
    row = await query.fetch_one(
        f"SELECT {_TRUSTED.text} {_FROM} WHERE t.session = ? AND t.sha256 = ? AND ({readable.text})",
        (session, sha256, *readable.values),
    )
    return None if row is None else _TRUSTED.read(row)


async def delete(tx: Transaction, session: SessionRow, sha256: str) -> None:
    await tx.execute("DELETE FROM trusted_content WHERE session = ? AND sha256 = ?", (session, sha256))


async def delete_of_session(tx: Transaction, session: SessionRow) -> None:
    await tx.execute("DELETE FROM trusted_content WHERE session = ?", (session,))
