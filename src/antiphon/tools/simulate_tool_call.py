"""`simulate_tool_call`: what policy would say of a call, without making it. Contract: simulate 1, flow 9."""

from collections.abc import Mapping
from typing import Any, cast

from pydantic import Field

from antiphon.agents.simulating import OutsideSimulator, RunSimulator
from antiphon.clock import Clock
from antiphon.domain.errors import Invalid
from antiphon.domain.message import JsonObject
from antiphon.engine.access.buckets import Buckets
from antiphon.engine.access.caller import Caller
from antiphon.policy.shares import Rate, Rates
from antiphon.tools.session_tool import Arguments, SessionTool

DESCRIPTION = (
    "Says what would become of a tool call, without making it: ALLOW, BLOCK, REDACT (parts of its arguments would be "
    "taken out) or APPROVE (a person would be asked). Use it before a call that may be refused."
)
RATE = Rate(per_minute=60, burst=60)
"""How often each session may simulate calls."""


class SimulateArguments(Arguments):
    aliases = {"toolName": "tool_name"}
    self_checked = frozenset({"args"})

    tool_name: str = Field(alias="tool_name", min_length=1, max_length=200, description="The tool's name.")
    args: dict[str, Any] = Field(default_factory=dict[str, Any], description="The arguments of the call.")


def simulate_tool_call(outside: OutsideSimulator, clock: Clock) -> SessionTool[SimulateArguments]:
    buckets = Buckets(Rates(), clock)

    async def carry_out(caller: Caller, arguments: SimulateArguments) -> Mapping[str, Any]:
        buckets.take_at(str(caller.session), RATE)
        tool, given = arguments.tool_name, cast(JsonObject, arguments.args)
        run = caller.run
        if run is None:
            found = await outside.simulate(caller, tool, given)
        else:
            simulator = getattr(run, "simulator", None)
            if not isinstance(simulator, RunSimulator):
                raise Invalid("Calls of this run cannot be simulated: its runner decides about them.", code="no_run")
            found = await simulator.simulate(tool, given)
        answer: dict[str, Any] = {
            "decision": found.action.name,
            "rules": list(found.rules),
            "currentTaint": found.taint.level.name,
            "resultingTaint": found.resulting.level.name,
            "reason": found.reason,
            "code": found.code,
        }
        return {name: value for name, value in answer.items() if value is not None}

    return SessionTool(
        "simulate_tool_call",
        DESCRIPTION,
        SimulateArguments,
        carry_out,
        codes=("rate_limited", "no_run"),
    )
