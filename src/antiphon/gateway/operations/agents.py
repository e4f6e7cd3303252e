"""The operation that lists agents. Contract: gateway 4."""

from antiphon.domain.tokens import TokenScope
from antiphon.gateway.operations.operation import NoParams, OperationRequest, operation
from antiphon.wire import agents as wire


@operation("agents.list", "GET /agents", scope=TokenScope.READ)
async def list_agents(request: OperationRequest, params: NoParams) -> wire.AgentList:
    """Lists the configured agents with which the caller may open sessions, in the order of the settings."""
    found = await request.services.sessions.openable_agents(request.principal)
    default = request.services.rules.default_agent
    return wire.AgentList(
        count=len(found),
        agents=[
            wire.AgentShape(id=agent.id, name=agent.name, model=agent.model, is_default=agent.id == default or None)
            for agent in found
        ],
    )
