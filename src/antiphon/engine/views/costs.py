"""What agents, persons and models cost, by day, with the caps of the present day. Contract: runs 6."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta

from msgspec import Struct

from antiphon.clock import Clock
from antiphon.domain.actor import Principal
from antiphon.domain.classification import EVERYTHING
from antiphon.domain.costs import NO_SUMS, Sums, UsedBy, most_first, summed
from antiphon.domain.ids import AgentId
from antiphon.engine.access.names import PersonNames
from antiphon.engine.access.reach import Rights, find_reach
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.caps import Cap, caps_of
from antiphon.store import costs as rows
from antiphon.store.costs import CostFilter
from antiphon.store.database import Database, Query, reads_much
from antiphon.store.people import find_standing
from antiphon.store.usage import Spent, find_agents_spent, find_spent, sum_spent

NONE = Spent()
MOST_LISTED = 100
"""How many persons and how many models are listed."""


class NamedSums(Struct, frozen=True, kw_only=True):
    """What the runs of one agent, person or model used."""

    id: str
    """An agent's id, a principal, or the name of a model; empty for a model that is not known."""
    name: str
    spent: Sums


class DailySums(Struct, frozen=True, kw_only=True):
    day: date
    spent: Sums


class CapLine(Struct, frozen=True, kw_only=True):
    """A cap of a UTC day, and how much of it is used today."""

    agent_id: AgentId | None = None
    """The agent that it limits; None for the cap of all agents together, or of a person."""
    cap: Cap
    spent: Spent
    """What counts against the cap: steps of models that cost something, on the day of the step. For a reader with a
    clearance, what they see of it."""

    @property
    def is_reached(self) -> bool:
        limits = self.cap.limits
        return (limits.tokens is not None and self.spent.tokens >= limits.tokens) or (
            limits.usd is not None and self.spent.microusd >= limits.usd * 1_000_000
        )


class CostReport(Struct, frozen=True, kw_only=True):
    """The costs of some days, as far as the reader reaches."""

    first: date
    last: date
    total: Sums
    checkpoints: Sums
    """The part of `total` that checkpoints used, beside turns."""
    days: Sequence[DailySums]
    """Every day from the first to the last."""
    agents: Sequence[NamedSums]
    """The dearest first, as people and models are."""
    people: Sequence[NamedSums]
    models: Sequence[NamedSums]
    """Without runs that have not asked a model."""
    other_people: Sums
    """What the list leaves out."""
    other_models: Sums
    caps: Sequence[CapLine]
    """For owners those of all agents, the one of all together first; for others their own."""


class Costs:
    """Reads costs in one snapshot. Raises `Denied` for those who may not list runs."""

    def __init__(self, database: Database, rules: Rules, clock: Clock, names: PersonNames) -> None:
        self._database = database
        self._rules = rules
        self._clock = clock
        self._names = names

    async def read(self, principal: Principal, *, days: int, agent_id: AgentId | None = None) -> CostReport:
        """The costs of so many UTC days, the present one being the last; of one agent, if one is named."""
        today = self._clock.now().date()
        where = CostFilter(first=today - timedelta(days=days - 1), last=today, today=today, agent_id=agent_id)
        found = await self._database.read(_read, Rights(principal, self._rules), where)
        return await self._report(found, where)

    async def _report(self, found: "_FoundCosts", where: CostFilter) -> CostReport:
        by_day = summed(found.used, lambda each: each.day)
        agents = most_first(summed(found.used, lambda each: each.agent_id))
        people = most_first(summed(found.used, lambda each: each.principal))
        models = most_first(summed((each for each in found.used if _has_asked(each)), lambda each: each.model))
        return CostReport(
            first=where.first,
            last=where.last,
            total=_sum(by_day.values()),
            checkpoints=found.checkpoints,
            days=[DailySums(day=day, spent=by_day.get(day, NO_SUMS)) for day in _days(where)],
            agents=[NamedSums(id=id, name=self._agent_name(id), spent=spent) for id, spent in agents],
            people=await self._people(people[:MOST_LISTED]),
            models=[NamedSums(id=id or "", name=id or "not known", spent=spent) for id, spent in models[:MOST_LISTED]],
            other_people=_sum(spent for _, spent in people[MOST_LISTED:]),
            other_models=_sum(spent for _, spent in models[MOST_LISTED:]),
            caps=found.caps,
        )

    def _agent_name(self, id: AgentId) -> str:
        agent = self._rules.agents.get(id)
        return id if agent is None else agent.name

    async def _people(self, sums: Sequence[tuple[str, Sums]]) -> list[NamedSums]:
        names = await self._names.read(principal for principal, _ in sums)
        return [NamedSums(id=id, name=names.get(id, id), spent=spent) for id, spent in sums]


def _has_asked(used: UsedBy) -> bool:
    return used.model is not None or used.spent.total_tokens > 0


class _FoundCosts(Struct, frozen=True):
    used: Sequence[UsedBy]
    checkpoints: Sums
    caps: Sequence[CapLine]


@reads_much
async def _read(query: Query, rights: Rights, where: CostFilter) -> _FoundCosts:
    reach = await find_reach(query, rights, Act.LIST_RUNS)
    used = await rows.list_used(query, reach, where)
    checkpoints = await rows.sum_checkpoints(query, reach, where)
    is_cleared = reach.clearance is EVERYTHING
    if reach.is_everything:
        spent = await find_agents_spent(query, where.today.isoformat()) if is_cleared else _seen(used, where.today)
        return _FoundCosts(used, checkpoints, _agent_caps(rights.rules, spent, only=where.agent_id))
    return _FoundCosts(used, checkpoints, await _own_caps(query, rights, used, where.today, is_cleared=is_cleared))


def _agent_caps(rules: Rules, spent: Mapping[AgentId, Spent], *, only: AgentId | None) -> list[CapLine]:
    """The caps of agents, the one of all together first; of one agent, its own."""
    lines = [
        CapLine(agent_id=agent.id, cap=Cap(limits=agent.daily, setting="limits.daily"), spent=spent.get(agent.id, NONE))
        for agent in rules.agents.values()
        if only in (None, agent.id)
    ]
    if only is not None:
        return lines
    total = sum_spent(spent.values())
    cap = Cap(limits=rules.daily_total, setting="limits.daily_total", name="daily cap of all agents together")
    return [CapLine(cap=cap, spent=total), *lines]


async def _own_caps(
    query: Query, rights: Rights, used: Sequence[UsedBy], today: date, *, is_cleared: bool
) -> list[CapLine]:
    """The caps of the reader, as far as they are set. What guests use together is not theirs to know."""
    own = str(rights.principal)
    caps = caps_of(await find_standing(query, rights.principal), rights.rules.person_caps)
    if is_cleared:
        spent = (await find_spent(query, today.isoformat(), [own])).get(own, NONE)
    else:
        mine = [each for each in used if each.principal == own]
        spent = sum_spent(_seen(mine, today).values())
    return [
        CapLine(cap=cap, spent=spent)
        for spender, cap in caps.items()
        if spender == own and (cap.limits.tokens is not None or cap.limits.usd is not None)
    ]


def _seen(used: Sequence[UsedBy], today: date) -> dict[AgentId, Spent]:
    """What the reader sees of today's use: sums that count everything would tell what is above them."""
    sums = summed((each for each in used if each.day == today), lambda each: each.agent_id)
    return {agent: Spent(spent.total_tokens, spent.cost_microusd or 0) for agent, spent in sums.items()}


def _days(where: CostFilter) -> list[date]:
    return [where.first + timedelta(days=number) for number in range((where.last - where.first).days + 1)]


def _sum(sums: Iterable[Sums]) -> Sums:
    return sum(sums, NO_SUMS)
