"""Implements `AgentRunner` with external harnesses that speak ACP. Contract: foreign_agents 2."""

from antiphon.acp.harness_run import HarnessRun, Shared
from antiphon.acp.live_turn import LiveTurns
from antiphon.acp.run_tools import RunTools
from antiphon.acp.settings import HarnessSettings
from antiphon.agents.carrying_out import CarryingOut
from antiphon.agents.fence import PURPOSE
from antiphon.agents.toolset import ToolSource
from antiphon.domain.home_key import HomeKey
from antiphon.engine.rules import Rules
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import AwaitsApproval, RunEnding
from antiphon.engine.sessions.workspaces import Workspaces


class HarnessRunner:
    """Carries each run out as a turn of the native session behind it."""

    def __init__(
        self,
        turns: LiveTurns,
        run_tools: RunTools,
        settings: HarnessSettings,
        *,
        tools: ToolSource,
        rules: Rules,
        home_key: HomeKey,
        workspaces: Workspaces,
    ) -> None:
        self._shared = Shared(
            turns=turns,
            run_tools=run_tools,
            settings=settings,
            tools=tools,
            rules=rules,
            fence_key=home_key.subkey(PURPOSE),
            workspaces=workspaces,
            carrying_out=CarryingOut(rules),
            home=workspaces.directory.parent,
        )

    async def run(self, context: RunContext) -> RunEnding | AwaitsApproval:
        run = HarnessRun(self._shared, context, await self._shared.turns.take(context.run))
        try:
            ended = await run.work()
        except BaseException:
            await run.end()
            raise
        if not isinstance(ended, AwaitsApproval):
            await run.end()
        return ended
