"""The operation that says what runs cost. Contract: runs 6."""

from typing import Annotated

from msgspec import Meta

from antiphon.domain.keys import parse_agent_id
from antiphon.domain.tokens import TokenScope
from antiphon.gateway.operations.operation import OperationRequest, Params, operation
from antiphon.wire import costs as wire

MAX_DAYS = 366


class GetCosts(Params, frozen=True, kw_only=True):
    days: Annotated[int, Meta(ge=1, le=MAX_DAYS, description="How many UTC days; the last is the present one.")] = 30
    agent_id: str | None = None


@operation("costs.get", "GET /costs", scope=TokenScope.READ)
async def get_costs(request: OperationRequest, params: GetCosts) -> wire.CostsShape:
    """Returns what the runs that you may see used, by day, agent, person and model, with the daily caps.

    Deleted sessions do not count any more.
    """
    agent_id = None if params.agent_id is None else parse_agent_id(params.agent_id)
    return wire.costs(await request.services.costs.read(request.principal, days=params.days, agent_id=agent_id))
