"""Operations on agents. Contract: gateway 4, foreign_agents 1."""

from typing import Annotated

from msgspec import Meta

from antiphon.domain.agent import AgentRuntime
from antiphon.domain.ids import AgentId
from antiphon.domain.tokens import TokenScope
from antiphon.gateway.operations.operation import NoParams, OperationRequest, Params, TargetKind, operation
from antiphon.wire import agents as wire


class ForgetParams(Params, frozen=True, kw_only=True):
    agent_id: Annotated[str, Meta(min_length=1, max_length=64)]
    """The id of an agent that a program gave in code, and that no process has now."""


@operation("agents.list", "GET /agents", scope=TokenScope.READ)
async def list_agents(request: OperationRequest, params: NoParams) -> wire.AgentList:
    """Lists the configured agents with which the caller may open sessions, in the order of the settings.

    For owners, agents follow that programs gave in code and that no process has now.
    """
    services = request.services
    found, missing = await services.sessions.openable_agents(request.principal), services.rules.missing_runners
    default = services.rules.default_agent
    agents = [wire.agent(each, is_default=each.id == default, is_missing=each.id in missing) for each in found]
    if await services.code_agents.may_see(request.principal):
        agents += [
            wire.AgentShape(id=agent.id, runtime=AgentRuntime.RUNNER, runner=agent.runner, problem=wire.RUNNER_MISSING)
            for agent in await services.code_agents.list_missing(request.principal)
        ]
    return wire.AgentList(count=len(agents), agents=agents)


@operation("agents.forget", "DELETE /agents/{agent_id}", scope=TokenScope.ADMIN, target=TargetKind.AGENT)
async def forget_agent(request: OperationRequest, params: ForgetParams) -> wire.ForgottenAgent:
    """Ends the waiting runs of an agent that a program gave in code and that is gone; its sessions stay."""
    runs = await request.services.code_agents.forget(request.principal, AgentId(params.agent_id))
    return wire.ForgottenAgent(id=params.agent_id, runs=runs)
