"""Rows of approval requests. `domain/approval` decides which state may follow which."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.approval import Approval, ApprovalState
from antiphon.domain.classification import Classification
from antiphon.domain.ids import ApprovalId, ProcessId, RunId, SessionRow
from antiphon.domain.session import DeliveryContext
from antiphon.policy.deciders import Deciding
from antiphon.store import codec
from antiphon.store.claims import is_left
from antiphon.store.database import Query, Row, SqlValue, Transaction
from antiphon.store.scopes import ANY, Condition, all_of, flow
from antiphon.store.select_list import SelectList

_APPROVAL = SelectList(
    Approval,
    "a.id, a.session, s.key AS session_key, a.incarnation AS session_id, a.run, a.delivery, a.result, a.agent_id, "
    "a.principal, a.state, a.calls, COALESCE(a.sources, '[]') AS sources, a.is_parked, a.asked_at, a.expires_at, "
    "a.decided_at, a.decided_by, a.note, "
    "COALESCE(k.is_due, 0) AS is_due, k.origin, k.begun_at, k.begun_by, k.outcome, "
    "COALESCE(k.level, 0) AS outcome_level, COALESCE(k.compartments, 0) AS outcome_compartments, "
    "COALESCE(k.integrity, 0) AS outcome_integrity, k.person AS outcome_person, "
    "i.taint_level, i.taint_compartments, i.taint_integrity, i.taint_person, "
    "a.shown_level, a.shown_compartments, a.shown_integrity, a.shown_person",
    principal=codec.stored_principal,
    state=codec.member_of(ApprovalState),
    calls=codec.asked_calls,
    sources=codec.sources,
    is_parked=bool,
    asked_at=codec.moment,
    expires_at=codec.moment,
    decided_at=codec.moment,
    decided_by=codec.stored_principal,
    is_due=bool,
    begun_at=codec.moment,
    made_of=codec.combined_classification("taint"),
    outcome_made_of=codec.combined_classification("outcome"),
    shows=codec.combined_classification("shown"),
)
_WITH_TAINT = "JOIN incarnations i ON i.id = a.incarnation"
_SELECT = (
    f"SELECT {_APPROVAL.text} FROM approvals a JOIN sessions s ON s.id = a.session {_WITH_TAINT} "
    "LEFT JOIN calls k ON k.id = a.id"
)
_CHANGING = ("run", "state", "calls", "is_parked", "decided_at", "decided_by", "note")
_SHOWN = ("shown_level", "shown_compartments", "shown_integrity", "shown_person")
_SET = ", ".join(f"{column} = ?" for column in _CHANGING)


def _approval(row: Row) -> Approval:
    found = _APPROVAL.read(row)
    return replace(found, made_of=found.made_of.join(found.shows))


def _readable(clearance: Classification) -> Condition:
    """What the asking session holds flows to the clearance, and what the request shows."""
    return all_of([flow("i.taint_", clearance), flow("a.shown_", clearance)])


class DueApproval(NamedTuple):
    """A request whose time is over."""

    id: ApprovalId
    session: SessionRow


class ApprovalFilter(Struct, frozen=True, kw_only=True):
    session: SessionRow | None = None
    state: ApprovalState | None = None
    before: ApprovalId | None = None
    """Ids sort by time; a page begins after the last id of the previous one."""
    ids: tuple[ApprovalId, ...] | None = None
    """Only these, at most 500."""


async def insert(tx: Transaction, approval: Approval) -> None:
    columns: dict[str, SqlValue] = {
        "id": approval.id,
        "session": approval.session,
        "incarnation": approval.session_id,
        "delivery": approval.delivery,
        "result": approval.result,
        **dict(zip(_SHOWN, codec.classification_values(approval.shows), strict=True)),
        "agent_id": approval.agent_id,
        "principal": str(approval.principal),
        "asked_at": codec.milliseconds(approval.asked_at),
        "expires_at": codec.milliseconds(approval.expires_at),
        "sources": codec.json_text(approval.sources) if approval.sources else None,
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
    return None if row is None else _approval(row)


async def list_to_carry_out(query: Query, process: ProcessId, after: Approval | None, limit: int) -> list[Approval]:
    """Requests with an approved call from outside a run that no living process carries out.

    Those decided first come first; `after` is the last request of the previous page.
    """
    later, values = "", list[SqlValue]()
    if after is not None and after.decided_at is not None:
        later, values = " AND (a.decided_at, a.id) > (?, ?)", [codec.milliseconds(after.decided_at), after.id]
    rows = await query.fetch_all(
        f"{_SELECT} WHERE k.is_due = 1 AND (k.begun_by IS NULL OR (k.begun_by <> ? AND {is_left('k.begun_by')}))"
        f"{later} ORDER BY a.decided_at, a.id LIMIT ?",
        (process, *values, limit),
    )
    return [_approval(row) for row in rows]


async def find_pending_of_run(query: Query, run: RunId) -> Approval | None:
    row = await query.fetch_one(f"{_SELECT} WHERE a.run = ? AND a.state = 'pending'", (run,))
    return None if row is None else _approval(row)


async def list_of_run(query: Query, run: RunId) -> list[Approval]:
    """All requests of the run."""
    rows = await query.fetch_all(f"{_SELECT} WHERE a.run = ?", (run,))
    return [_approval(row) for row in rows]


async def is_text_asked(query: Query, run: RunId, delivery: str) -> bool:
    """Whether another text of the run was asked about, or this one still is."""
    row = await query.fetch_one(
        "SELECT 1 FROM deliveries d JOIN approvals a ON a.delivery = d.id WHERE d.run_id = ? "
        "AND (d.id <> ? OR a.state = 'pending') LIMIT 1",
        (run, delivery),
    )
    return row is not None


async def list_pending_of_results(query: Query, reports: Sequence[str]) -> list[Approval]:
    """The open requests about these results."""
    marks = ", ".join("?" * len(reports))
    rows = await query.fetch_all(
        f"{_SELECT} WHERE a.result IN ({marks}) AND a.state = 'pending' ORDER BY a.id", reports
    )
    return [_approval(row) for row in rows]


async def list_pending(query: Query, session: SessionRow) -> list[Approval]:
    """The open requests of the session, oldest first."""
    rows = await query.fetch_all(f"{_SELECT} WHERE a.session = ? AND a.state = 'pending' ORDER BY a.id", (session,))
    return [_approval(row) for row in rows]


async def list_page(query: Query, deciding: Deciding, where: ApprovalFilter, *, limit: int) -> list[Approval]:
    """The requests that a person sees, newest first."""
    readable = _readable(deciding.clearance)
    conditions, values = [readable.text], [*readable.values]
    if deciding.agents is not None:
        conditions.append(f"a.agent_id IN ({', '.join('?' * len(deciding.agents))})")
        values += sorted(deciding.agents)
    if where.session is not None:
        conditions.append("a.session = ?")
        values.append(where.session)
    if where.state is not None:
        conditions.append(f"a.state = '{where.state.value}'")  # a constant, as the index of open requests needs it
    if where.before is not None:
        conditions.append("a.id < ?")
        values.append(where.before)
    if where.ids is not None:
        conditions.append(f"a.id IN ({', '.join('?' * len(where.ids))})")
        values += where.ids
    rows = await query.fetch_all(
        f"{_SELECT} WHERE {' AND '.join(conditions)} ORDER BY a.id DESC LIMIT ?", (*values, limit)
    )
    return [_approval(row) for row in rows]


async def count_open(query: Query, deciding: Deciding, without: Principal | None, most: int) -> int:
    """How many open requests a person sees, up to `most`; without those of one principal."""
    readable = _readable(deciding.clearance)
    conditions, values = ["a.state = 'pending'", readable.text], [*readable.values]
    joined = "" if readable is ANY else _WITH_TAINT
    if deciding.agents is not None:
        conditions.append(f"a.agent_id IN ({', '.join('?' * len(deciding.agents))})")
        values += sorted(deciding.agents)
    if without is not None:
        conditions.append("a.principal <> ?")
        values.append(str(without))
    row = await query.fetch_one(
        f"SELECT COUNT(*) FROM (SELECT 1 FROM approvals a {joined} WHERE {' AND '.join(conditions)} LIMIT ?) AS open",
        (*values, most),
    )
    assert row is not None
    return row[0]


async def count_open_of(query: Query, principal: Principal, most: int) -> int:
    """How many open requests the principal has, up to `most`."""
    row = await query.fetch_one(
        "SELECT COUNT(*) FROM (SELECT 1 FROM approvals WHERE state = 'pending' AND principal = ? LIMIT ?) AS open",
        (str(principal), most),
    )
    assert row is not None
    return row[0]


async def count_unshown(query: Query, deciding: Deciding, principal: Principal, place: DeliveryContext) -> int:
    """How many open requests of the principal a person may see, of which no message at the place tells."""
    readable = _readable(deciding.clearance)
    conditions, values = ["a.state = 'pending'", "a.principal = ?", readable.text], [str(principal), *readable.values]
    if deciding.agents is not None:
        conditions.append(f"a.agent_id IN ({', '.join('?' * len(deciding.agents))})")
        values += sorted(deciding.agents)
    row = await query.fetch_one(
        f"SELECT COUNT(*) FROM approvals a {_WITH_TAINT} WHERE {' AND '.join(conditions)} AND NOT EXISTS (SELECT 1 "
        "FROM deliveries d WHERE d.approval = a.id AND d.channel = ? AND d.recipient = ? "
        "AND COALESCE(d.account_id, '') = ?)",
        (*values, place.channel, place.to, place.account_id or ""),
    )
    assert row is not None
    return row[0]


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
