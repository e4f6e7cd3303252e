"""The tools that runs of agents have, those of MCP servers among them, as people and programs see them listed."""

from antiphon.agents.toolset import Toolset, ToolSource
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.callers import Callers, Outsider
from antiphon.engine.rules import Rules


class OfferedTools:
    """Both wait for MCP servers up to their deadlines."""

    def __init__(self, source: ToolSource, callers: Callers, rules: Rules) -> None:
        self._source = source
        self._callers = callers
        self._rules = rules

    async def of_session(self, actor: Outsider, target: NamedTarget) -> Toolset:
        """Raises `NotFound`."""
        found = await self._callers.find(actor, target, "schemas")
        offered = await self._source.tools_for(found.caller.agent_id)
        return offered.for_session(found.caller.agent_id, found.depth, found.standing, self._rules)

    async def of_agents(self) -> list[Toolset]:
        return [await self._source.tools_for(agent_id) for agent_id in self._rules.agents]
