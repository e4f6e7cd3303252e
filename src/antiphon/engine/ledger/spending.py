"""What models cost: sums by UTC day, agent and person, against which the caps count. Contract: runs 6."""

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.domain.message import Usage
from antiphon.policy.caps import Cap, PersonCaps, caps_of, spenders_of
from antiphon.policy.standing import Standing
from antiphon.store.database import Query, Transaction
from antiphon.store.people import find_standing
from antiphon.store.usage import AgentDay, Spent, add_agent_spent, add_spent, find_agents_spent, find_spent, sum_spent


def day_of(at_ms: int) -> str:
    """The UTC day, `yyyy-mm-dd`."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d}"


class Spender(Struct, frozen=True):
    """Who asks a model: an agent, with the rights of a principal."""

    agent_id: AgentId
    principal: Principal
    session: SessionRow
    """Where it works."""


async def note_spent(tx: Transaction, spender: Spender, usage: Usage) -> None:
    """Adds to the sums of the day: of the agent, and of the person with whose rights it asked its model."""
    spent = Spent(usage.total_tokens, usage.cost_microusd or 0)
    await add_agent_spent(tx, AgentDay(day_of(tx.now_ms), spender.agent_id, spender.session), spent)
    for person in spenders_of(await find_standing(tx, spender.principal)):
        await add_spent(tx, day_of(tx.now_ms), person, spent)


class SpentToday(Struct, frozen=True):
    """What was used so far in a UTC day."""

    own: Spent
    """By the agent."""
    total: Spent
    """By all agents together."""
    by_person: Sequence[tuple[Spent, Cap]]
    """By the person with whose rights it acts, and by all guests, each with its cap."""
    leaves_reserve: bool
    """Whether it acts for a person below owner, who leaves a part of the agents' day for owners."""


async def find_spent_today(query: Query, day: str, spender: Spender, person_caps: PersonCaps) -> SpentToday:
    standing = await find_standing(query, spender.principal)
    return await find_spent_by(query, day, SpenderNow(spender.agent_id, standing), person_caps)


class SpenderNow(Struct, frozen=True):
    """A spender whose standing this unit has read."""

    agent_id: AgentId
    standing: Standing


async def find_spent_by(query: Query, day: str, spender: SpenderNow, person_caps: PersonCaps) -> SpentToday:
    spent = await find_agents_spent(query, day)
    total = sum_spent(spent.values())
    caps = caps_of(spender.standing, person_caps)
    by_person = await find_spent(query, day, caps)
    capped = [(by_person.get(person, Spent()), cap) for person, cap in caps.items()]
    return SpentToday(spent.get(spender.agent_id, Spent()), total, capped, leaves_reserve=bool(caps))
