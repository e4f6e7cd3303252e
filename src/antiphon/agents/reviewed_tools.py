"""Tools of others as an owner reviewed them. Contract: flow 10."""

from antiphon.agents.toolset import Tool, Toolset, ToolSource, reviewed_tool
from antiphon.domain.ids import AgentId
from antiphon.engine.approvals.tool_reviews import ToolReviews


class ReviewedTools:
    """Implements `ToolSource`. Reads reviews anew each time: other processes store them too."""

    def __init__(self, source: ToolSource, reviews: ToolReviews) -> None:
        self._source = source
        self._reviews = reviews

    async def tools_for(self, agent_id: AgentId) -> Toolset:
        offered = await self._source.tools_for(agent_id)
        sources = {tool.foreign.source for tool in offered.tools if tool.foreign is not None}
        return offered.reviewed(await self._reviews.of_sources(sources)) if sources else offered

    async def reviewed(self, tool: Tool) -> Tool:
        """One tool, from outside a run."""
        if tool.foreign is None:
            return tool
        return reviewed_tool(tool, await self._reviews.of_sources([tool.foreign.source]))
