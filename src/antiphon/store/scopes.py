"""A scope as SQL, on the columns of `sessions s` and its present incarnation `i`. Contract: visibility 4.

It is the very rule of `policy/visibility.decide`, which a test holds to it.
"""

from dataclasses import dataclass

from antiphon.domain.classification import Classification
from antiphon.domain.ids import AgentId
from antiphon.policy.visibility import Act, Scope, Visibility
from antiphon.store.database import Query, SqlValue

MAX_DEPTH = 5
"""Of a session in a tree; the deepest has no descendants."""
ALL_COMPARTMENTS = 2**62 - 1


@dataclass(frozen=True, slots=True)
class Condition:
    """A part of a WHERE clause, with its parameters."""

    text: str
    values: tuple[SqlValue, ...] = ()


async def branches(query: Query, scope: Scope) -> list[Condition]:
    """Conditions, each served by one index, of which a session in the scope fulfils exactly one.

    An empty list is an empty scope.
    """
    if scope.visibility is None:
        return []
    common = [_flow(scope.caller.taint)]
    if access := _access(scope):
        common.append(access)
    return [_all([branch, *common]) for branch in await _branches(query, scope)]


async def _branches(query: Query, scope: Scope) -> list[Condition]:
    caller = scope.caller
    ancestor = f"s.ancestor_{caller.depth}"
    own = Condition("s.id = ?", (caller.session,))
    tree = Condition(f"{ancestor} = ?", (caller.session,)) if caller.depth < MAX_DEPTH else None
    if scope.visibility is Visibility.SELF:
        found = [own]
    elif scope.visibility is Visibility.TREE:
        found = [own, tree] if tree else [own]
    else:
        agents = await _agents(query, scope)
        if agents is None:
            return [Condition("1 = 1")]
        found = [Condition("s.agent_id = ?", (agent,)) for agent in agents]
        if tree:
            others = f"s.agent_id NOT IN ({', '.join('?' * len(agents))})"
            found.append(Condition(f"{tree.text} AND {others}", (*tree.values, *agents)))
    if scope.act is Act.SEND and caller.parent is not None:
        met = " OR ".join(f"({branch.text})" for branch in found)
        values = tuple(value for branch in found for value in branch.values)
        found.append(Condition(f"s.id = ? AND NOT COALESCE({met}, FALSE)", (caller.parent, *values)))
    return found


async def _agents(query: Query, scope: Scope) -> list[AgentId] | None:
    """The agents whose sessions are all in the scope; None where those of every agent are."""
    own = scope.caller.agent_id
    if not scope.crosses_agents:
        return [own]
    if not scope.agent_to_agent.allow:
        return None
    return [agent for agent in await list_agents(query) if agent == own or scope.agent_to_agent.admits(agent)]


async def list_agents(query: Query) -> list[AgentId]:
    """Every agent that has listed sessions, by one step in the index each."""
    rows = await query.fetch_all(
        "WITH RECURSIVE agents (id) AS (SELECT MIN(agent_id) FROM sessions UNION ALL "
        "SELECT (SELECT MIN(s.agent_id) FROM sessions s WHERE s.agent_id > agents.id) FROM agents "
        "WHERE agents.id IS NOT NULL) SELECT id FROM agents WHERE id IS NOT NULL"
    )
    return [AgentId(row[0]) for row in rows]


def _flow(taint: Classification) -> Condition:
    """The session's taint flows to this one. Contract: flow 1, 3."""
    return Condition(
        "i.taint_level <= ? AND (i.taint_compartments & ?) = 0",
        (int(taint.level), ALL_COMPARTMENTS & ~taint.compartments),
    )


def _access(scope: Scope) -> Condition | None:
    """Others than the owner reach their own tree and what they take part in. Contract: access 1."""
    caller = scope.caller
    if caller.principal is None:
        return None
    mine = "s.id = ?"
    if caller.depth < MAX_DEPTH:
        mine += f" OR COALESCE(s.ancestor_{caller.depth}, -1) = ?"
    values: list[SqlValue] = [caller.session] * mine.count("?")
    if scope.act is Act.SEND and caller.parent is not None:
        mine += " OR s.id = ?"
        values.append(caller.parent)
    taking_part = "EXISTS (SELECT 1 FROM participants t WHERE t.session = s.id AND t.principal = ?)"
    return Condition(f"({mine} OR {taking_part})", (*values, caller.principal))


def _all(conditions: list[Condition]) -> Condition:
    return Condition(
        " AND ".join(condition.text for condition in conditions),
        tuple(value for condition in conditions for value in condition.values),
    )
