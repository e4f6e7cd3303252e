"""What would become of a tool call, by the pipeline that decides about calls, without effects. Contract: simulate 1.

It tells no more than the call itself would: the rules that it names are those that the call's own refusal would name.
"""

import json
from collections.abc import Callable
from typing import Any, cast

from msgspec import Struct

from antiphon.agents.approving import Judge, caller_of
from antiphon.agents.call_flow import brought_by
from antiphon.agents.outside_gate import GateDecision, OutsideGate
from antiphon.agents.text import whole_text
from antiphon.agents.toolset import RefusingByTarget, Tool, ToolContext, ToolOutput
from antiphon.domain.classification import EVERYTHING, Classification
from antiphon.domain.message import JsonObject, ToolCallPart
from antiphon.domain.transcript import OpenCall
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.callers import Callers, FoundCaller
from antiphon.engine.runs.context import RunContext
from antiphon.policy.decision import Deny
from antiphon.policy.session_tools import SESSION_TOOLS
from antiphon.policy.written.fields import Action

_RUNS = "The call would run."
_WITHOUT = "The call would run without what rules take out of its arguments."
_ASKS = "A person would be asked first."
UNKNOWN = "unknown_tool"


class Simulation(Struct, frozen=True, kw_only=True):
    action: Action
    reason: str
    """A sentence."""
    taint: Classification
    """Of the session now."""
    resulting: Classification
    """What the session would hold after the call."""
    rules: tuple[str, ...] = ()
    code: str | None = None
    """Of the refusal."""


class RunSimulator:
    """Foresees calls of one run."""

    def __init__(self, context: RunContext, judge: Judge) -> None:
        self._context = context
        self._judge = judge

    async def simulate(self, tool: str, arguments: JsonObject) -> Simulation:
        context, judge = self._context, self._judge
        transcript = context.transcript
        steps = [] if transcript is None else transcript.steps_of(context.run.id)
        part = ToolCallPart(call_id="simulated", name=tool, arguments=whole_text(json.dumps(arguments)))
        seq = steps[-1].seq if steps else context.last_seq
        call = OpenCall(message_seq=seq, index=len(steps[-1].message.calls) if steps else 0, part=part, is_begun=False)
        (judged,) = await judge.judge(context, [call])
        found = judge.tool_of(call)
        taint, workspace = context.taint, context.workspace
        if found is None or tool not in judge.tools.names:
            return _unknown(tool, taint)
        target = await _refuse_target(found, ToolContext(caller_of(context, judged.call)), arguments)
        asks = None if judged.asked is None else judged.asked.reason
        foreseen = GateDecision(judged.refusal, asks, judged.decided)
        return _said(foreseen, target, taint, _after(found, taint, workspace))


class OutsideSimulator:
    """Foresees calls from outside a run: the session's taint is their context."""

    def __init__(self, gate: Callable[[], OutsideGate], callers: Callers) -> None:
        self._gate = gate
        self._callers = callers

    async def simulate(self, caller: Caller, tool: str, arguments: JsonObject) -> Simulation:
        session, standing = await self._callers.session_of(caller)
        found = FoundCaller(caller, session.depth, standing, session, EVERYTHING)
        gate = self._gate()
        known = gate.given_to(found).find(tool)
        if known is None:
            return _unknown(tool, session.taint)
        known = await gate.present(found, known, arguments)
        foreseen = await gate.foresee(found, known, arguments)
        target = await _refuse_target(known, ToolContext(caller), arguments)
        return _said(foreseen, target, session.taint, _after(known, session.taint, session.workspace))


async def _refuse_target(tool: Tool, context: ToolContext, arguments: JsonObject) -> Deny | None:
    """The refusal of the call by its own target, if that can be known."""
    return await tool.refusal_of(context, arguments) if isinstance(tool, RefusingByTarget) else None


def _after(tool: Tool, taint: Classification, workspace: Classification) -> Classification:
    """A session tool shows no more than what flows to the session's taint."""
    return taint if tool.schema.name in SESSION_TOOLS else taint.join(brought_by(tool, workspace))


def _said(judged: GateDecision, target: Deny | None, taint: Classification, resulting: Classification) -> Simulation:
    if judged.refusal is not None:
        told = _told(judged.refusal)
        return Simulation(
            action=Action.BLOCK,
            reason=str(told.get("error") or told.get("message") or "The call would be refused."),
            taint=taint,
            resulting=taint,
            rules=tuple(map(str, told.get("rules") or ())),
            code=cast("str | None", told.get("code")),
        )
    if judged.asks is not None:
        return Simulation(action=Action.APPROVE, reason=_ASKS, taint=taint, resulting=resulting)
    if target is not None:
        return Simulation(action=Action.BLOCK, reason=target.reason, taint=taint, resulting=taint, code=target.rule)
    if judged.decided.redacts:
        return Simulation(action=Action.REDACT, reason=_WITHOUT, taint=taint, resulting=resulting)
    return Simulation(action=Action.ALLOW, reason=_RUNS, taint=taint, resulting=resulting)


def _unknown(tool: str, taint: Classification) -> Simulation:
    reason = f"Tool not found: {tool[:80]!r}."
    return Simulation(action=Action.BLOCK, reason=reason, taint=taint, resulting=taint, code=UNKNOWN)


def _told(refusal: ToolOutput) -> dict[str, Any]:
    try:
        found: object = json.loads(refusal.text)
    except ValueError:
        return {"error": refusal.text}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
