"""`agents_list`: the agents under which the caller may spawn sessions. Contract: agents_list 1."""

from collections.abc import Mapping
from typing import Any

from antiphon.domain.agent import Agent, AgentRuntime
from antiphon.domain.ids import AgentId
from antiphon.engine.access.caller import Caller
from antiphon.engine.views.views import Views
from antiphon.tools.session_tool import Arguments, SessionTool

DESCRIPTION = (
    "Lists the agents under which this session may spawn sub-agents, its own agent first. Use it before sessions_spawn "
    "with agentId; an agent with runtime 'acp' is spawned with that runtime."
)


class NoArguments(Arguments):
    pass


def agents_list(views: Views) -> SessionTool[NoArguments]:
    async def carry_out(caller: Caller, arguments: NoArguments) -> Mapping[str, Any]:
        view = views.agents(caller)
        return {
            "requester": view.requester,
            "allowAny": view.allow_any,
            "agents": [_row(id, agent) for id, agent in view.agents],
        }

    return SessionTool("agents_list", DESCRIPTION, NoArguments, carry_out)


def _row(id: AgentId, agent: Agent | None) -> dict[str, Any]:
    if agent is None:
        return {"id": id, "configured": False}
    row: dict[str, Any] = {"id": id, "name": agent.name, "configured": True}
    return {**row, **of_harness(agent)}


def of_harness(agent: Agent) -> dict[str, Any]:
    """What a row says of an agent that is an external harness: that it is one, and whether it may act unasked."""
    if agent.runtime is not AgentRuntime.ACP:
        return {}
    return {"runtime": agent.runtime.value, **({"unattended": True} if agent.is_unattended else {})}
