"""`sessions_yield`: ends the turn until all children have ended. Contract: spawn 8."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from antiphon.domain.agent import Effect
from antiphon.engine.access.caller import Caller
from antiphon.engine.children.wait import ChildWaits
from antiphon.policy.session_tools import YIELD_TOOL
from antiphon.tools.session_tool import Arguments, SessionTool

DESCRIPTION = (
    "Ends this turn now. When all sub-agents of this session have ended, one new turn begins with their results. "
    "If a message is given, it is sent as the answer in the meantime. Use it if there is nothing else to do."
)


class YieldArguments(Arguments):
    message: str | None = Field(None, max_length=10_000, description="A message to send in the meantime.")


def sessions_yield(waits: ChildWaits) -> SessionTool[YieldArguments]:
    async def carry_out(caller: Caller, arguments: YieldArguments) -> Mapping[str, Any]:
        return {"status": "ok", "yielded": True, "waitingFor": await waits.yield_(caller)}

    return SessionTool(
        YIELD_TOOL,
        DESCRIPTION,
        YieldArguments,
        carry_out,
        codes=("no_run", "nothing_to_wait_for"),
        effects=frozenset({Effect.WRITES}),
    )
