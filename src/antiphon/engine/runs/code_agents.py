"""Agents whose runners some process lacks: their runs wait for a process that has them. Contract: foreign_agents 1."""

from collections.abc import Sequence

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.errors import Conflict, NotFound
from antiphon.domain.ids import AgentId
from antiphon.engine.access.reach import refuse_act
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.decision import Allow
from antiphon.policy.rights import decide_act
from antiphon.store import code_agents, processes
from antiphon.store import runs as ledger
from antiphon.store.code_agents import CodeAgent
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import find_standing


class ForgetAgent(Struct, frozen=True, kw_only=True):
    principal: Principal
    id: AgentId
    here: frozenset[AgentId]
    """The agents whose runs this process can carry out."""


class CodeAgents:
    """The agents that programs gave in code. All raise `Denied` for anyone but owners."""

    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def list_missing(self, principal: Principal) -> Sequence[CodeAgent]:
        """Those which neither this process nor another one that works now has, by id."""
        known = await self._database.read(_list_missing, principal)
        return [agent for agent in known if agent.id not in self._rules.agents]

    async def may_see(self, principal: Principal) -> bool:
        """Whether the principal may see agents that are missing."""
        standing = await self._database.read(find_standing, principal)
        return isinstance(decide_act(standing, Act.AGENTS), Allow)

    async def forget(self, principal: Principal, id: AgentId) -> int:
        """Ends its runs, `unknown_agent`; returns how many wait. Its sessions and logs stay.

        Raises `NotFound` for an agent that no program gave in code, and `Conflict` (`agent_present`) for one that is
        still there.
        """
        here = frozenset(self._rules.agents) - frozenset(self._rules.missing_runners)
        return await self._database.run(_forget, ForgetAgent(principal=principal, id=id, here=here))


async def _list_missing(query: Query, principal: Principal) -> list[CodeAgent]:
    refuse_act(await find_standing(query, principal), Act.AGENTS)
    working = await _working(query)
    return [agent for agent in await code_agents.list_all(query) if agent.id not in working]


async def _forget(tx: Transaction, command: ForgetAgent) -> int:
    refuse_act(await find_standing(tx, command.principal), Act.AGENTS)
    if not await code_agents.exists(tx, command.id):
        raise NotFound(
            f"No program gave an agent {command.id!r} in code. `antiphon agents list` shows those that are missing."
        )
    if command.id in command.here or command.id in await _working(tx):
        raise Conflict(
            f"Agent {command.id!r} is there: a process that works now has its runner. Stop the program first.",
            code="agent_present",
        )
    await code_agents.delete(tx, command.id)
    waiting = await ledger.list_sessions_of_agent(tx, command.id)
    for session in {*waiting}:
        tx.wake(session)
    return len(waiting)


async def _working(query: Query) -> set[AgentId]:
    return {id for process in await processes.list_all(query) for id in process.agents}
