"""A reach as SQL, on the columns of `sessions s` and its present incarnation `i`. Contract: visibility 4.

It implements the rule of `policy/reach.decide`; a test compares the two.
"""

from msgspec import Struct

from antiphon.domain.classification import EVERYTHING, PEOPLE, Classification
from antiphon.domain.ids import AgentId
from antiphon.policy.acts import Act
from antiphon.policy.reach import Reach, Viewer
from antiphon.policy.visibility import Visibility
from antiphon.store.database import Query, SqlValue

MAX_DEPTH = 5
"""Of a session in a tree; the deepest has no descendants."""
ALL_COMPARTMENTS = 2**62 - 1


class Condition(Struct, frozen=True):
    """A part of a WHERE clause, with its parameters."""

    text: str
    values: tuple[SqlValue, ...] = ()


ANY = Condition("1 = 1")


async def branches(query: Query, reach: Reach) -> list[Condition]:
    """Conditions, each using one index; a session in the reach meets exactly one of them."""
    found, common = await _parts(query, reach)
    return [all_of([branch, *common]) for branch in found]


async def inside(query: Query, reach: Reach) -> Condition:
    """The condition that a session is in the reach; what needs its incarnation comes last, and once."""
    found, common = await _parts(query, reach)
    return all_of([any_of(found), *common])


async def within(query: Query, reach: Reach, column: str) -> Condition:
    """The condition that the column holds the row of a session in the reach."""
    if reach.is_everything:
        return ANY
    met = await inside(query, reach)
    return Condition(
        f"{column} IN (SELECT s.id FROM sessions s JOIN incarnations i ON i.id = s.incarnation WHERE {met.text})",
        met.values,
    )


async def _parts(query: Query, reach: Reach) -> tuple[list[Condition], list[Condition]]:
    """Branches, of which a session in the reach meets exactly one, and conditions of which it meets all."""
    viewer = reach.viewer
    if viewer is None:
        return [_of_person(reach)], []
    common = [flow("i.taint_", reach.clearance)]
    if reach.participant is not None:
        common.append(_access(reach, viewer, reach.participant))
    return await _branches(query, reach, viewer), common


async def _branches(query: Query, reach: Reach, viewer: Viewer) -> list[Condition]:
    caller = viewer.session
    ancestor = f"s.ancestor_{caller.depth}"
    own = Condition("s.id = ?", (caller.row,))
    tree = Condition(f"{ancestor} = ?", (caller.row,)) if caller.depth < MAX_DEPTH else None
    if viewer.visibility is Visibility.SELF:
        found = [own]
    elif viewer.visibility is Visibility.TREE:
        found = [own, tree] if tree else [own]
    else:
        agents = await _agents(query, viewer)
        if agents is None:
            return [ANY]
        found = [Condition("s.agent_id = ?", (agent,)) for agent in agents]
        if tree:
            others = f"s.agent_id NOT IN ({', '.join('?' * len(agents))})"
            found.append(Condition(f"{tree.text} AND {others}", (*tree.values, *agents)))
    if reach.act is Act.SEND and caller.parent is not None:
        met = any_of(found)
        found.append(Condition(f"s.id = ? AND NOT COALESCE({met.text}, FALSE)", (caller.parent, *met.values)))
    return found


async def _agents(query: Query, viewer: Viewer) -> list[AgentId] | None:
    """The agents whose sessions are all in the reach; None for every agent."""
    own = viewer.session.agent_id
    if not viewer.crosses_agents:
        return [own]
    if not viewer.agent_to_agent.allow:
        return None
    return [agent for agent in await list_agents(query) if agent == own or viewer.agent_to_agent.admits(agent)]


async def list_agents(query: Query) -> list[AgentId]:
    """Every agent with listed sessions, found by one index step per agent."""
    rows = await query.fetch_all(
        "WITH RECURSIVE agents (id) AS (SELECT MIN(agent_id) FROM sessions UNION ALL "
        "SELECT (SELECT MIN(s.agent_id) FROM sessions s WHERE s.agent_id > agents.id) FROM agents "
        "WHERE agents.id IS NOT NULL) SELECT id FROM agents WHERE id IS NOT NULL"
    )
    return [AgentId(row[0]) for row in rows]


def flow(columns: str, clearance: Classification) -> Condition:
    """The classification in the columns with this prefix flows to the clearance. Contract: flow 1, 3."""
    if clearance is EVERYTHING:
        return ANY
    # Written so that PostgreSQL expects many rows to meet it: of an equation with an expression it expects one of 200.
    text = f"{columns}level <= ? AND ({columns}compartments & ?) < 1"
    values = (int(clearance.level), ALL_COMPARTMENTS & ~clearance.compartments)
    if clearance.person == PEOPLE:
        return Condition(text, values)
    # Compared with a text that no person has where the clearance names none.
    return Condition(f"{text} AND ({columns}person IS NULL OR {columns}person = ?)", (*values, clearance.person or ""))


def skipped_before(session: str, seq: str, clearance: Classification) -> Condition:
    """An expression: how many events before that one a session with the clearance must not notice. Contract: flow 13.

    Only those count that were above the session when they were stored: others were noticed when it rose.
    """
    readable = flow("u.", clearance)
    return Condition(
        f"(SELECT COUNT(*) FROM unnoticed_events u WHERE u.session = {session} AND u.seq < {seq} "
        f"AND NOT ({readable.text}))",
        readable.values,
    )


def when(met: Condition, value: str, otherwise: str = "NULL") -> Condition:
    """An expression: the value if the condition is met."""
    return (
        Condition(value)
        if met is ANY
        else Condition(f"CASE WHEN {met.text} THEN {value} ELSE {otherwise} END", met.values)
    )


def _access(reach: Reach, viewer: Viewer, participant: str) -> Condition:
    """Principals other than the owner reach their own tree and the sessions they take part in. Contract: access 1."""
    caller = viewer.session
    mine = "s.id = ?"
    if caller.depth < MAX_DEPTH:
        mine += f" OR COALESCE(s.ancestor_{caller.depth}, -1) = ?"
    values: list[SqlValue] = [caller.row] * mine.count("?")
    if reach.act is Act.SEND and caller.parent is not None:
        mine += " OR s.id = ?"
        values.append(caller.parent)
    taking_part = _takes_part(participant)
    return Condition(f"({mine} OR {taking_part.text})", (*values, *taking_part.values))


def _of_person(reach: Reach) -> Condition:
    """What a person or program reaches. Contract: access 1, 2."""
    if reach.namespace is not None:
        start = f"{reach.namespace}:"
        return Condition(f"SUBSTR(s.incarnation, 1, {len(start)}) = ?", (start,))
    found = ANY if reach.participant is None else _takes_part(reach.participant)
    return found if reach.only is None else all_of([Condition("s.id = ?", (reach.only,)), found])


def _takes_part(participant: str) -> Condition:
    return Condition("EXISTS (SELECT 1 FROM participants t WHERE t.session = s.id AND t.principal = ?)", (participant,))


def any_of(conditions: list[Condition]) -> Condition:
    if len(conditions) == 1:
        return conditions[0]
    return Condition(
        f"({' OR '.join(f'({condition.text})' for condition in conditions)})",
        tuple(value for condition in conditions for value in condition.values),
    )


def all_of(conditions: list[Condition]) -> Condition:
    if all(condition is ANY for condition in conditions):
        return ANY
    return Condition(
        " AND ".join(condition.text for condition in conditions),
        tuple(value for condition in conditions for value in condition.values),
    )
