"""Tools as one agent has them: those that differ from agent to agent are its own. Contract: foreign_agents 5."""

from antiphon.agents.reviewed_tools import ReviewedTools
from antiphon.agents.toolset import ByAgent, Tool, Toolset
from antiphon.domain.ids import AgentId


class AgentTools:
    """Implements `ToolSource`, over tools as owners reviewed them."""

    def __init__(self, reviewed: ReviewedTools) -> None:
        self._reviewed = reviewed

    async def tools_for(self, agent_id: AgentId) -> Toolset:
        return await (await self._reviewed.tools_for(agent_id)).of_agent(agent_id)

    async def tool_for(self, agent_id: AgentId, tool: Tool) -> Tool:
        """One tool, from outside a run; itself if the agent does not have it now, so that it answers so."""
        if isinstance(tool, ByAgent):
            return await tool.for_agent(agent_id) or tool
        return await self._reviewed.reviewed(tool)
