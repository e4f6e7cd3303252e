"""Carries out the calls that a run has recorded: judged, asked for, begun, run, and their results stored.

Whoever makes the calls, a model in our own loop or the runner of a program, they go this way. Contract: runs 8,
approvals 4, foreign_agents 1.
"""

import json

import anyio

from antiphon.agents.approving import Judge, JudgedCall, caller_of
from antiphon.agents.call_arguments import read_call_arguments
from antiphon.agents.text import bounded_text, whole_text
from antiphon.agents.toolset import Tool, ToolContext, ToolOutput, Toolset
from antiphon.domain.agent import Effect
from antiphon.domain.classification import Classification, Integrity, join_all
from antiphon.domain.errors import Invalid
from antiphon.domain.message import ToolResult, text_content
from antiphon.domain.run import Outcome, RunStatus
from antiphon.domain.transcript import OpenCall, Step
from antiphon.engine.ledger.run_log import OUTCOME_UNKNOWN
from antiphon.engine.rules import Rules
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import AwaitsApproval, RunEnding
from antiphon.policy.rights import may_call
from antiphon.policy.session_tools import SESSION_TOOLS
from antiphon.policy.written.rule_set import RuleDecision

CANCELLED = Outcome(status=RunStatus.CANCELLED, error="The run was cancelled.", code="cancelled")


class CarryingOut:
    """Carries out calls of runs."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    async def run_calls(self, context: RunContext, step: Step, judge: Judge) -> RunEnding | AwaitsApproval | None:
        """Runs the step's calls that have no result: in order, or all at once if all of them only read.

        Stops at the first that needs an approval, and asks for all that need one. Contract: approvals 4.
        """
        judged = await judge.judge(context, [result for result in step.results if isinstance(result, OpenCall)])
        if all(each.asked is None and _only_reads(judge.tool_of(each.call)) for each in judged):
            try:
                async with anyio.create_task_group() as tasks:
                    for each in judged:
                        tasks.start_soon(self.run_call, context, each, judge)
            except ExceptionGroup as group:
                raise group.exceptions[0] from None  # the error of recording, as if there had been one call
            return None
        for each in judged:
            if each.asked is not None:
                carried = join_all(each.call.carried for each in judged if each.asked is not None)
                has_asked = await context.ask_approval(await judge.asked(judged), self._rules, carried=carried)
                return AwaitsApproval() if has_asked else RunEnding(outcome=CANCELLED)
            if not await self.run_call(context, each, judge):
                return None  # judged again, with the rights that the principal has now
        return None

    async def run_call(self, context: RunContext, judged: JudgedCall, judge: Judge) -> bool:
        """Whether the call has its result now; False if it must be judged again before it begins."""
        call = judged.call
        output = judged.refusal or await self._call(context, judged, judge)
        if output is None:
            return False
        output, said = await judge.look_at_result(context, judged, output)
        await context.record_result(
            ToolResult(
                message_id=context.ids.new("msg"),
                call_seq=call.message_seq,
                call_index=call.index,
                tool=call.part.name,
                tool_call_id=call.part.call_id,
                content=text_content(whole_text(bounded_text(output.text))),
                is_error=output.is_error,
            ),
            _source(output, judged.call, context),
            self._rules.sinks,
            uses_workspace=judged.refusal is None and judge.uses_workspace(call),
            usage=output.usage,
            decided=_decided(judged, said),
        )
        return True

    async def _call(self, context: RunContext, judged: JudgedCall, judge: Judge) -> ToolOutput | None:
        """The call's output; None if it has not begun, because what it was judged by has changed meanwhile."""
        call = judged.call
        name = call.part.name
        tool = judge.tool_of(call)
        if tool is None:
            return _unknown_tool(name, judge.tools)
        if call.is_begun and not tool.is_idempotent:
            return ToolOutput(OUTCOME_UNKNOWN, is_error=True)
        try:
            arguments = read_call_arguments(call.part.arguments).values
        except Invalid as invalid:
            return _tool_error(invalid.code, invalid.message)
        if call.is_begun:
            standing = await context.standing()
        else:
            begun = await context.record_call(
                call,
                judge.standing,
                judged.allowed_by,
                workspace=judge.workspace_use(context, tool, call),
                decided=judged.decided,
            )
            standing = judge.standing = begun.standing
            if not begun.has_begun:
                return None
        if not may_call(name, standing, self._rules.role_tools):
            return _tool_error("tool_not_given", f"Tool is not available any more: {name!r}. Do without it.")
        return await tool.call(ToolContext(caller_of(context, call, judged.release, judged.files)), arguments)


def _decided(judged: JudgedCall, of_result: RuleDecision) -> RuleDecision:
    """What the event of the result says of rules: why the call did not run, or what became of its result."""
    return of_result if judged.refusal is None else judged.decided


def _source(output: ToolOutput, call: OpenCall, context: RunContext) -> Classification:
    """What the result adds to the context. The session tools show whatever may flow to the session's taint.

    What these show of others is as trusted as it was there, which the tool says.
    """
    source = output.classification.join(call.carried)
    if call.part.name not in SESSION_TOOLS:
        return source
    return source.join(context.taint.with_integrity(Integrity.TRUSTED))


def _only_reads(tool: Tool | None) -> bool:
    return tool is None or tool.effects <= {Effect.READS}


def _unknown_tool(name: str, tools: Toolset) -> ToolOutput:
    return _tool_error("unknown_tool", f"Tool not found: {name[:80]!r}. Available tools: {', '.join(tools.names)}.")


def _tool_error(code: str, message: str) -> ToolOutput:
    return ToolOutput(json.dumps({"status": "error", "code": code, "error": message}), is_error=True)
