"""`agents_list`: the agents under which the caller may spawn sessions. Contract: agents_list 1."""

from collections.abc import Mapping
from typing import Any

from antiphon.engine.access.caller import Caller
from antiphon.engine.views.views import Views
from antiphon.tools.session_tool import Arguments, SessionTool

DESCRIPTION = (
    "Lists the agents under which this session may spawn sub-agents, its own agent first. Use it before sessions_spawn "
    "with agentId."
)


class NoArguments(Arguments):
    pass


def agents_list(views: Views) -> SessionTool[NoArguments]:
    async def carry_out(caller: Caller, arguments: NoArguments) -> Mapping[str, Any]:
        view = views.agents(caller)
        return {
            "requester": view.requester,
            "allowAny": view.allow_any,
            "agents": [
                {"id": id, **({"name": name} if name is not None else {}), "configured": name is not None}
                for id, name in view.agents
            ],
        }

    return SessionTool("agents_list", DESCRIPTION, NoArguments, carry_out)
