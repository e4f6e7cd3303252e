"""Which runner carries out an agent's runs: our own loop, a runner of the program, or a harness."""

from collections.abc import Mapping

from antiphon.domain.agent import AgentRuntime
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import AgentRunner, AwaitsApproval, RunEnding


class RuntimesOfAgents:
    """Implements `AgentRunner` with that of each agent's runtime."""

    def __init__(self, runners: Mapping[AgentRuntime, AgentRunner]) -> None:
        self._runners = runners

    async def run(self, context: RunContext) -> RunEnding | AwaitsApproval:
        return await self._runners[context.agent.runtime].run(context)
