"""Rows of incarnations."""

from datetime import datetime

from msgspec import Struct

from antiphon.domain.classification import Classification
from antiphon.domain.ids import SessionId, SessionRow
from antiphon.store import codec
from antiphon.store.database import Query, Transaction


class Incarnation(Struct, frozen=True, kw_only=True):
    """One life of a key, present or ended."""

    id: SessionId
    session: SessionRow
    first_seq: int
    last_seq: int | None
    """None for the present one."""
    started_at: datetime
    taint: Classification


async def find(query: Query, session_id: SessionId) -> Incarnation | None:
    row = await query.fetch_one(
        "SELECT id, session, first_seq, last_seq, started_at, taint_level, taint_compartments, taint_integrity, "
        "taint_person "
        "FROM incarnations WHERE id = ?",
        (session_id,),
    )
    if row is None:
        return None
    id, session, first_seq, last_seq, started_at, *taint = row
    return Incarnation(
        id=id,
        session=session,
        first_seq=first_seq,
        last_seq=last_seq,
        started_at=codec.moment(started_at),
        taint=codec.classification(*taint),
    )


async def start(
    tx: Transaction, session: SessionRow, session_id: SessionId, *, first_seq: int, at_ms: int, workspace_seq: int = 0
) -> None:
    """Starts an incarnation with empty working memory, at the session's base classification.

    `workspace_seq` goes into the name of its workspace; a new number gives it an empty one.
    """
    await tx.execute(
        "INSERT INTO incarnations (id, session, first_seq, started_at, workspace_seq, taint_level, taint_compartments, "
        "taint_integrity, taint_person) SELECT ?, id, ?, ?, ?, base_level, base_compartments, base_integrity, "
        "base_person FROM sessions WHERE id = ?",
        (session_id, first_seq, at_ms, workspace_seq, session),
    )


async def end(tx: Transaction, session_id: SessionId, *, last_seq: int, at_ms: int) -> None:
    await tx.execute("UPDATE incarnations SET last_seq = ?, ended_at = ? WHERE id = ?", (last_seq, at_ms, session_id))


async def stretch(tx: Transaction, session_id: SessionId, last_seq: int) -> None:
    """Extends an ended incarnation to an event that came late; does not change a present one."""
    await tx.execute(
        "UPDATE incarnations SET last_seq = ? WHERE id = ? AND last_seq IS NOT NULL", (last_seq, session_id)
    )


async def set_taint(tx: Transaction, session_id: SessionId, taint: Classification) -> None:
    await tx.execute(
        "UPDATE incarnations SET taint_level = ?, taint_compartments = ?, taint_integrity = ?, taint_person = ? "
        "WHERE id = ?",
        (*codec.classification_values(taint), session_id),
    )


async def find_present_taint(query: Query, session: SessionRow) -> Classification | None:
    """The taint of the session's present incarnation; None if the session was deleted."""
    row = await query.fetch_one(
        f"SELECT {codec.classification_columns('i.taint_')} FROM sessions s "
        "JOIN incarnations i ON i.id = s.incarnation WHERE s.id = ?",
        (session,),
    )
    return None if row is None else codec.classification(*row)


async def find_workspace(query: Query, session_id: SessionId) -> Classification | None:
    """What the workspace of the incarnation was made of; None if its session was deleted."""
    row = await query.fetch_one(
        f"SELECT {codec.classification_columns('workspace_')} FROM incarnations WHERE id = ?", (session_id,)
    )
    return None if row is None else codec.classification(*row)


async def set_workspace(tx: Transaction, session_id: SessionId, made_of: Classification) -> None:
    """Stores what the workspace of the incarnation was made of."""
    await tx.execute(
        "UPDATE incarnations SET workspace_level = ?, workspace_compartments = ?, workspace_integrity = ?, "
        "workspace_person = ? WHERE id = ?",
        (*codec.classification_values(made_of), session_id),
    )
