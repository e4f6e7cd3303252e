"""What runs used: sums of the ledger by UTC day, agent, person and model. Contract: runs 6."""

from datetime import date, timedelta

from msgspec import Struct

from antiphon.domain.costs import Sums, UsedBy
from antiphon.domain.ids import AgentId
from antiphon.policy.reach import Reach
from antiphon.store.database import Query, Row, SqlValue
from antiphon.store.scopes import Condition, all_of, flow, within

FIRST_DAY = date(1970, 1, 1)
_SUMS = (
    "COUNT(*), SUM(r.input_tokens), SUM(r.output_tokens), SUM(r.cached_tokens), SUM(r.cost_microusd), "
    "SUM(CASE WHEN r.cost_microusd IS NULL THEN r.input_tokens + r.output_tokens ELSE 0 END), "
    "SUM(r.estimated_tokens)"
)
_UNFINISHED = (
    "SELECT a.id FROM runs a WHERE a.status IN ('running', 'awaiting_approval') AND a.is_parked = 0 "
    "UNION ALL SELECT a.id FROM runs a WHERE a.is_parked = 1"
)
"""Two conditions, because each has an index of its own that holds only such runs."""


class CostFilter(Struct, frozen=True, kw_only=True):
    first: date
    """The first UTC day."""
    last: date
    """The last UTC day."""
    today: date
    """The day on which runs count that have not ended."""
    agent_id: AgentId | None = None


async def list_used(query: Query, reach: Reach, where: CostFilter) -> list[UsedBy]:
    """The sums of runs in the reach that flow to its clearance. An ended run counts on the day on which it ended."""
    inside = await within(query, reach, "r.session")
    agent = Condition("1 = 1") if where.agent_id is None else Condition("r.agent_id = ?", (where.agent_id,))
    ended = _ended(agent, inside, reach, where)
    rows = await query.fetch_all(
        f"SELECT r.ended_on, r.agent_id, r.principal, r.model, {_SUMS} FROM runs r WHERE {ended.text} "
        "GROUP BY r.ended_on, r.agent_id, r.principal, r.model",
        ended.values,
    )
    if where.first <= where.today <= where.last:
        # What an unfinished run shows is made of all that its incarnation holds. Contract: flow 4.
        open_now = all_of([agent, inside, flow("i.taint_", reach.clearance)])
        rows += await query.fetch_all(
            f"SELECT CAST(? AS BIGINT), r.agent_id, r.principal, r.model, {_SUMS} FROM runs r "
            f"LEFT JOIN incarnations i ON i.id = r.incarnation WHERE r.id IN ({_UNFINISHED}) "
            f"AND r.ended_on IS NULL AND {open_now.text} GROUP BY r.agent_id, r.principal, r.model",
            (_number(where.today), *open_now.values),
        )
    return [_used(row) for row in rows]


async def sum_checkpoints(query: Query, reach: Reach, where: CostFilter) -> Sums:
    """What the checkpoints among those runs used."""
    inside = await within(query, reach, "r.session")
    agent = Condition("1 = 1") if where.agent_id is None else Condition("r.agent_id = ?", (where.agent_id,))
    ended = _ended(agent, inside, reach, where)
    row = await query.fetch_one(
        f"SELECT {_SUMS} FROM runs r WHERE r.purpose = 'checkpoint' AND {ended.text}", ended.values
    )
    assert row is not None
    return _sums(*row)


def _ended(agent: Condition, inside: Condition, reach: Reach, where: CostFilter) -> Condition:
    """The runs that ended in those days, as far as they flow to the reader."""
    return all_of([Condition("r.ended_on BETWEEN ? AND ?", _days(where)), agent, inside, flow("r.", reach.clearance)])


def _days(where: CostFilter) -> tuple[SqlValue, ...]:
    return (_number(where.first), _number(where.last))


def _number(day: date) -> int:
    return (day - FIRST_DAY).days


def _used(row: Row) -> UsedBy:
    day, agent_id, principal, model, *sums = row
    return UsedBy(
        day=FIRST_DAY + timedelta(days=int(day)),
        agent_id=AgentId(agent_id),
        principal=principal,
        model=model,
        spent=_sums(*sums),
    )


def _sums(runs: int, *sums: int | None) -> Sums:
    tokens_in, tokens_out, cached, cost, unpriced, estimated = (None if value is None else int(value) for value in sums)
    return Sums(
        runs=int(runs),
        input_tokens=tokens_in or 0,
        output_tokens=tokens_out or 0,
        cached_tokens=cached or 0,
        cost_microusd=cost,
        unpriced_tokens=unpriced or 0,
        estimated_tokens=estimated or 0,
    )
