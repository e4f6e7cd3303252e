"""Rows of approval requests. `domain/approval` decides which state may follow which."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from antiphon.domain.approval import Approval, ApprovalState
from antiphon.domain.ids import ApprovalId, RunId, SessionRow
from antiphon.policy.reach import Reach
from antiphon.store import codec
from antiphon.store.database import Query, SqlValue, Transaction
from antiphon.store.scopes import within
from antiphon.store.select_list import SelectList

_APPROVAL = SelectList(
    Approval,
    "a.id, a.session, s.key AS session_key, a.incarnation AS session_id, a.run, a.origin, a.agent_id, a.principal, "
    "a.state, a.calls, a.is_parked, a.asked_at, a.expires_at, a.decided_at, a.decided_by, a.note, a.begun_at, "
    "a.outcome",
    principal=codec.stored_principal,
    state=codec.member_of(ApprovalState),
    calls=codec.asked_calls,
    is_parked=bool,
    asked_at=codec.moment,
    expires_at=codec.moment,
    decided_at=codec.moment,
    decided_by=codec.stored_principal,
    begun_at=codec.moment,
)
_SELECT = f"SELECT {_APPROVAL.text} FROM approvals a JOIN sessions s ON s.id = a.session"
_CHANGING = ("run", "state", "calls", "is_parked", "decided_at", "decided_by", "note")
_SET = ", ".join(f"{column} = ?" for column in _CHANGING)


class DueApproval(NamedTuple):
    """A request whose time is over."""

    id: ApprovalId
    session: SessionRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalFilter:
    session: SessionRow | None = None
    state: ApprovalState | None = None
    before: ApprovalId | None = None
    """Ids sort by time; a page begins after the last id of the previous one."""


async def insert(tx: Transaction, approval: Approval) -> None:
    columns: dict[str, SqlValue] = {
        "id": approval.id,
        "session": approval.session,
        "incarnation": approval.session_id,
        "origin": approval.origin,
        "agent_id": approval.agent_id,
        "principal": str(approval.principal),
        "asked_at": codec.milliseconds(approval.asked_at),
        "expires_at": codec.milliseconds(approval.expires_at),
        **_changing(approval),
    }
    await tx.execute(
        f"INSERT INTO approvals ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
        tuple(columns.values()),
    )


async def update_pending(tx: Transaction, approval: Approval) -> bool:
    """Stores the state of a request that was pending; False if another unit has answered it meanwhile."""
    values = (*_changing(approval).values(), approval.id)
    return await tx.change(f"UPDATE approvals SET {_SET} WHERE id = ? AND state = 'pending'", values) == 1


async def move(tx: Transaction, approval: Approval) -> None:
    """Stores the run to which an answered request now belongs, and the places of its calls there."""
    columns = {name: value for name, value in _changing(approval).items() if name in ("run", "calls", "is_parked")}
    assignments = ", ".join(f"{column} = ?" for column in columns)
    await tx.execute(f"UPDATE approvals SET {assignments} WHERE id = ?", (*columns.values(), approval.id))


async def find(query: Query, id: ApprovalId) -> Approval | None:
    row = await query.fetch_one(f"{_SELECT} WHERE a.id = ?", (id,))
    return None if row is None else _APPROVAL.read(row)


async def find_by_origin(query: Query, origin: str) -> Approval | None:
    """The request of that call from outside a run."""
    row = await query.fetch_one(f"{_SELECT} WHERE a.origin = ?", (origin,))
    return None if row is None else _APPROVAL.read(row)


async def begin(tx: Transaction, id: ApprovalId, at_ms: int, *, keeps_origin: bool) -> bool:
    """Notes that the approved call from outside begins; False if it has begun before."""
    origin = "" if keeps_origin else ", origin = NULL"
    statement = f"UPDATE approvals SET begun_at = ?{origin} WHERE id = ? AND state = 'decided' AND begun_at IS NULL"
    return await tx.change(statement, (at_ms, id)) == 1


async def forget_origin(tx: Transaction, id: ApprovalId) -> None:
    await tx.execute("UPDATE approvals SET origin = NULL WHERE id = ?", (id,))


async def store_outcome(tx: Transaction, id: ApprovalId, outcome: str) -> None:
    await tx.execute("UPDATE approvals SET outcome = ? WHERE id = ?", (outcome, id))


async def find_pending_of_run(query: Query, run: RunId) -> Approval | None:
    row = await query.fetch_one(f"{_SELECT} WHERE a.run = ? AND a.state = 'pending'", (run,))
    return None if row is None else _APPROVAL.read(row)


async def list_of_run(query: Query, run: RunId) -> list[Approval]:
    """All requests of the run."""
    rows = await query.fetch_all(f"{_SELECT} WHERE a.run = ?", (run,))
    return [_APPROVAL.read(row) for row in rows]


async def list_pending(query: Query, session: SessionRow) -> list[Approval]:
    """The open requests of the session, oldest first."""
    rows = await query.fetch_all(f"{_SELECT} WHERE a.session = ? AND a.state = 'pending' ORDER BY a.id", (session,))
    return [_APPROVAL.read(row) for row in rows]


async def list_page(query: Query, reach: Reach, where: ApprovalFilter, *, limit: int) -> list[Approval]:
    """Requests of sessions in the reach, newest first."""
    inside = await within(query, reach, "a.session")
    conditions, values = [inside.text], list(inside.values)
    if where.session is not None:
        conditions.append("a.session = ?")
        values.append(where.session)
    if where.state is not None:
        conditions.append("a.state = ?")
        values.append(where.state.value)
    if where.before is not None:
        conditions.append("a.id < ?")
        values.append(where.before)
    rows = await query.fetch_all(
        f"{_SELECT} WHERE {' AND '.join(conditions)} ORDER BY a.id DESC LIMIT ?", (*values, limit)
    )
    return [_APPROVAL.read(row) for row in rows]


async def list_due(query: Query, at_ms: int, limit: int) -> list[DueApproval]:
    """Open requests whose time is over, the earliest first."""
    rows = await query.fetch_all(
        "SELECT id, session FROM approvals WHERE state = 'pending' AND expires_at <= ? ORDER BY expires_at LIMIT ?",
        (at_ms, limit),
    )
    return [DueApproval(*row) for row in rows]


async def next_due(query: Query) -> int | None:
    """The time in milliseconds at which the next request expires; None if none is open."""
    row = await query.fetch_one("SELECT MIN(expires_at) FROM approvals WHERE state = 'pending'")
    return None if row is None else row[0]


async def make_due(tx: Transaction, runs: Sequence[RunId]) -> None:
    """Makes the open requests of runs that were cancelled due at once."""
    for run in runs:
        await tx.execute("UPDATE approvals SET expires_at = 0 WHERE run = ? AND state = 'pending'", (run,))


async def delete_all(tx: Transaction, session: SessionRow) -> None:
    await tx.execute("DELETE FROM approvals WHERE session = ?", (session,))


def _changing(approval: Approval) -> dict[str, SqlValue]:
    decided_at, decided_by = approval.decided_at, approval.decided_by
    return {
        "run": approval.run,
        "state": approval.state.value,
        "calls": codec.json_text(approval.calls),
        "is_parked": int(approval.is_parked),
        "decided_at": None if decided_at is None else codec.milliseconds(decided_at),
        "decided_by": None if decided_by is None else str(decided_by),
        "note": approval.note,
    }
