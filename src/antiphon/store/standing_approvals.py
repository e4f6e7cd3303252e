"""Rows of standing approvals."""

from antiphon.domain.actor import Principal
from antiphon.domain.classification import Classification
from antiphon.domain.ids import AgentId, RunId, StandingApprovalId, TaskId
from antiphon.domain.standing_approval import StandingApproval
from antiphon.store import codec
from antiphon.store.database import Query, Transaction
from antiphon.store.scopes import flow
from antiphon.store.select_list import Combined, SelectList


def _fields(text: str) -> tuple[str, ...]:
    return tuple(map(str, codec.json_list(text)))


_STANDING = SelectList(
    StandingApproval,
    "g.id, g.agent_id, g.principal, g.tool, g.definition, g.fields, g.arguments, g.run, g.approval, g.created_at, "
    "g.created_by, g.task, g.counts_untrusted, g.release, g.level, g.compartments, g.integrity, g.person",
    principal=codec.stored_principal,
    fields=_fields,
    created_at=codec.moment,
    created_by=codec.stored_principal,
    counts_untrusted=bool,
    release=codec.standing_release,
    made_of=Combined(
        codec.classification, level="level", compartments="compartments", integrity="integrity", person="person"
    ),
)
_SELECT = f"SELECT {_STANDING.text} FROM standing_approvals g"
_OF_OWNERS = (
    "JOIN people p ON p.id = substr(g.created_by, 8) JOIN people q ON q.id = COALESCE(p.merged_into, p.id) "
    "WHERE q.role = 'owner' AND q.is_suspended = 0"
)
"""Only those that somebody decided who still is an owner; the principal's text is `person:` with the id."""


async def insert(tx: Transaction, standing: StandingApproval) -> None:
    await tx.execute(
        "INSERT INTO standing_approvals (id, agent_id, principal, tool, definition, fields, arguments, run, approval, "
        "created_at, created_by, task, counts_untrusted, release, level, compartments, integrity, person) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            standing.id,
            standing.agent_id,
            str(standing.principal),
            standing.tool,
            standing.definition,
            None if standing.fields is None else codec.json_text(standing.fields),
            standing.arguments,
            standing.run,
            standing.approval,
            codec.milliseconds(standing.created_at),
            str(standing.created_by),
            standing.task,
            int(standing.counts_untrusted),
            None if standing.release is None else codec.json_text(standing.release),
            *codec.classification_values(standing.made_of),
        ),
    )


async def list_of(query: Query, principal: Principal, agent_id: AgentId, task: TaskId | None) -> list[StandingApproval]:
    """Those that count now for the principal and the agent: for a task those of the task alone, else none of tasks."""
    of, values = ("g.task IS NULL", ()) if task is None else ("g.task = ?", (task,))
    rows = await query.fetch_all(
        f"{_SELECT} {_OF_OWNERS} AND g.principal = ? AND g.agent_id = ? AND {of} ORDER BY g.id",
        (str(principal), agent_id, *values),
    )
    return [_STANDING.read(row) for row in rows]


async def counts(query: Query, id: StandingApprovalId) -> bool:
    """Whether it was neither revoked nor decided by somebody who is no owner any more."""
    return await query.fetch_one(f"SELECT 1 FROM standing_approvals g {_OF_OWNERS} AND g.id = ?", (id,)) is not None


async def list_page(
    query: Query, clearance: Classification, *, before: StandingApprovalId | None, limit: int
) -> list[StandingApproval]:
    """All that flow to the clearance, newest first; for commands only while their run has not ended."""
    readable = flow("g.", clearance)
    older, values = ("", ()) if before is None else (" AND g.id < ?", (before,))
    rows = await query.fetch_all(
        f"{_SELECT} WHERE (g.run IS NULL OR EXISTS (SELECT 1 FROM runs r WHERE r.id = g.run AND r.ended_at IS NULL)) "
        f"AND ({readable.text}){older} ORDER BY g.id DESC LIMIT ?",
        (*readable.values, *values, limit),
    )
    return [_STANDING.read(row) for row in rows]


async def find(query: Query, id: StandingApprovalId, clearance: Classification) -> StandingApproval | None:
    """None as well if it does not flow to the clearance."""
    readable = flow("g.", clearance)
    row = await query.fetch_one(f"{_SELECT} WHERE g.id = ? AND ({readable.text})", (id, *readable.values))
    return None if row is None else _STANDING.read(row)


async def delete(tx: Transaction, id: StandingApprovalId) -> None:
    await tx.execute("DELETE FROM standing_approvals WHERE id = ?", (id,))


async def delete_of_task(tx: Transaction, task: TaskId) -> None:
    """Deletes those by which runs of the task pass."""
    await tx.execute("DELETE FROM standing_approvals WHERE task = ?", (task,))


async def move(tx: Transaction, run: RunId, continuation: RunId) -> None:
    """Those for commands of the run are for those of its continuation from now on."""
    await tx.execute("UPDATE standing_approvals SET run = ? WHERE run = ?", (continuation, run))


async def delete_ended(tx: Transaction) -> None:
    """Deletes those for commands of runs that have ended."""
    await tx.execute(
        "DELETE FROM standing_approvals WHERE run IS NOT NULL AND NOT EXISTS "
        "(SELECT 1 FROM runs r WHERE r.id = standing_approvals.run AND r.ended_at IS NULL)"
    )
