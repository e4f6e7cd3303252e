"""Agents whose runners are given in code, as processes that had the code said. Contract: foreign_agents 1."""

from collections.abc import Mapping

from msgspec import Struct

from antiphon.domain.ids import AgentId
from antiphon.store.database import Query, Transaction
from antiphon.store.select_list import SelectList


class CodeAgent(Struct, frozen=True, kw_only=True):
    """An agent that a program gave in code."""

    id: AgentId
    runner: str
    """The name of its runner."""


COUNT_WAITING = (
    "SELECT a.id, COUNT(r.id) FROM code_agents a LEFT JOIN runs r ON r.agent_id = a.id AND r.ended_at IS NULL "
    "GROUP BY a.id"
)
"""The runs that have not ended, of each agent that is given in code."""
_AGENT = SelectList(CodeAgent, "id, runner")


async def put(tx: Transaction, runners: Mapping[AgentId, str]) -> None:
    """Notes the agents of a process, by id with the names of their runners."""
    for id, runner in runners.items():
        await tx.execute(
            "INSERT INTO code_agents (id, runner, seen_at) VALUES (?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET runner = excluded.runner, seen_at = excluded.seen_at",
            (id, runner, tx.now_ms),
        )


async def exists(query: Query, id: AgentId) -> bool:
    return await query.fetch_one("SELECT 1 FROM code_agents WHERE id = ?", (id,)) is not None


async def list_all(query: Query) -> list[CodeAgent]:
    """By id."""
    return [_AGENT.read(row) for row in await query.fetch_all(f"SELECT {_AGENT.text} FROM code_agents ORDER BY id")]


async def delete(tx: Transaction, id: AgentId) -> bool:
    """False if there is none of that id."""
    return await tx.change("DELETE FROM code_agents WHERE id = ?", (id,)) == 1
