"""Carries out tool calls from outside, if what they carry and bring may flow.

Such a call acts as its session, so it carries the session's taint. Its answer goes to the person who calls.
Contract: flow 3, 7, tools 1, approvals 5.
"""

import json
from functools import partial
from typing import NamedTuple, cast

from msgspec.structs import replace

from antiphon.agents.agent_tools import AgentTools
from antiphon.agents.approving import (
    asked_from_outside,
    effects_of,
    effects_of_words,
    files_of,
    hash_of_definition,
    hash_of_workspace,
    in_workspace,
    is_walled,
    left_by,
    refuse_asking,
    refused_words,
)
from antiphon.agents.call_flow import Calling, brought_by, may_leave, refuse_call, sink_of
from antiphon.agents.call_rules import RuledCall, ask_before, ask_of_result, reason_of, refuse_by_rule, without_redacted
from antiphon.agents.text import whole_text
from antiphon.agents.toolset import (
    Foreseeing,
    Tool,
    ToolContext,
    ToolOutput,
    Toolset,
    is_command,
    tool_with,
    uses_workspace,
)
from antiphon.clock import Clock
from antiphon.domain.agent import Effect
from antiphon.domain.approval import Approval, AskedCall
from antiphon.domain.classification import EVERYTHING, Classification, join_all
from antiphon.domain.errors import Denied, NotFound, Unavailable
from antiphon.domain.message import JsonObject
from antiphon.engine.access.callers import Callers, FoundCaller
from antiphon.engine.access.facts import Acting
from antiphon.engine.calls.calls import ApprovedWork, CallOutcome
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.policy.approvals import NeedsApproval, decide_call
from antiphon.policy.decision import Allow, Deny
from antiphon.policy.exit import takes
from antiphon.policy.flow import WITHHELD, is_untrusted, is_write_down
from antiphon.policy.session_tools import SESSION_TOOLS
from antiphon.policy.written.fields import Action
from antiphon.policy.written.rule_set import RuleDecision


class GateAnswer(NamedTuple):
    answer: JsonObject
    brought: Classification
    """What the tool's result added to what the session held."""


class GateDecision(NamedTuple):
    """What is decided about a call before it begins."""

    refusal: ToolOutput | None
    asks: str | None
    """Why somebody would be asked; None if nobody would."""
    decided: RuleDecision


class OutsideGate:
    """Decides by the session as it was when the caller was found."""

    def __init__(
        self,
        tools: Toolset,
        given: AgentTools,
        callers: Callers,
        rules: Rules,
        *,
        workspaces: Workspaces,
        clock: Clock,
    ) -> None:
        self._tools = tools
        self._given = given
        self._callers = callers
        self._rules = rules
        self._workspaces = workspaces
        self._clock = clock

    def given_to(self, found: FoundCaller) -> Toolset:
        """The tools of the session that the caller acts as."""
        return self._tools.for_session(found.caller.agent_id, found.depth, found.standing, self._rules)

    async def shown_to(self, found: FoundCaller) -> Toolset:
        """The same, as the session's agent has them now."""
        return await self.given_to(found).of_agent(found.caller.agent_id)

    async def present(self, found: FoundCaller, tool: Tool, arguments: JsonObject) -> Tool:
        """The tool as an owner reviewed it and as the session's agent has it, with the effects of the call."""
        return tool_with(await self._given.tool_for(found.caller.agent_id, tool), arguments)

    def _effects_of(self, found: FoundCaller, tool: Tool) -> frozenset[Effect]:
        is_sandboxed = self._rules.are_sandboxed(found.session)
        return effects_of(tool, is_walled=is_walled(found.standing, is_sandboxed=is_sandboxed))

    async def decide(self, found: FoundCaller, tool: Tool, arguments: JsonObject) -> RuleDecision:
        """What written rules say of the call. What they take out of its arguments must not run."""
        return await ask_before(self._ruled(found, tool, arguments), self._rules)

    def _ruled(self, found: FoundCaller, tool: Tool, arguments: JsonObject) -> RuledCall:
        session, effects = found.session, self._effects_of(found, tool)
        leaves = may_leave(effects, self._rules.agents.get(session.agent_id))
        return RuledCall(
            acting=Acting(session, found.standing, session.taint, self._clock.now()),
            tool=tool,
            arguments=arguments,
            effects=effects,
            server=None,
            sink=sink_of(tool, self._rules.sinks, leaves=leaves),
            caller=found.caller,
        )

    async def foresee(self, found: FoundCaller, tool: Tool, arguments: JsonObject) -> GateDecision:
        """What would become of the call, by the same steps and in their order; changes nothing."""
        said = await self.decide(found, tool, arguments)
        arguments = without_redacted(said, tool, arguments)
        if refusal := await self.refuse(found, tool):
            return GateDecision(refusal, None, said)
        if said.action is Action.BLOCK:
            return GateDecision(refuse_by_rule(said), None, said)
        try:
            asked = await self.asked(found, tool, json.dumps(arguments, ensure_ascii=False), said)
        except Denied as denied:
            return GateDecision(
                ToolOutput(json.dumps(_refused(denied.code, denied.message)), is_error=True), None, said
            )
        if asked is None:
            return GateDecision(None, None, said)
        if refusal := await self.refuse_words(found, tool, arguments):
            return GateDecision(refusal, None, said)
        return GateDecision(None, asked.reason, said)

    async def asked(self, found: FoundCaller, tool: Tool, text: str, said: RuleDecision) -> AskedCall | None:
        """The call as a person is asked about it, with the workspace of now; None if it needs no approval."""
        name = tool.schema.name
        effects = self._effects_of(found, tool)
        steered = is_untrusted(found.session.taint, found.standing)
        rules, standing = self._rules.approval, found.standing
        effects = effects_of_words(tool, text, effects)
        need = decide_call(rules, name, effects, standing, is_from_server=False, is_untrusted=steered)
        if isinstance(need, Deny):
            raise Denied(f"{need.reason} The call did not run.", code=need.rule)
        if said.action is Action.APPROVE:
            before = "" if isinstance(need, Allow) else f"{need.reason} "
            need = NeedsApproval(
                f"rule:{said.rules[0]}", f"{before}{reason_of(said)}", is_untrusted=steered, by_rule=True
            )
        if isinstance(need, Allow):
            return None
        asked = asked_from_outside(tool, text, need, await files_of(tool, found.caller, text))
        if not is_command(tool):
            return asked
        return in_workspace(asked, await hash_of_workspace(self._workspaces.of_session(found.session)))

    async def refuse_words(self, found: FoundCaller, tool: Tool, arguments: JsonObject) -> ToolOutput | None:
        """The refusal of a call about which a person would be asked in vain: its words may not go to their target."""
        if refusal := refuse_asking(tool, arguments):
            return refusal
        if not isinstance(tool, Foreseeing):
            return None
        foreseen = await tool.foresee(ToolContext(found.caller), arguments)
        denied = None if foreseen is None else foreseen.decision
        return refused_words(denied) if denied is not None and is_write_down(denied) else None

    async def refuse(self, found: FoundCaller, tool: Tool) -> ToolOutput | None:
        """The refusal of a call that may not be made. Reads nothing if everything is public."""
        session = found.session
        leaves = may_leave(self._effects_of(found, tool), self._rules.agents.get(session.agent_id))
        calling, find_ceiling = Calling(session.taint, session.taint, session.workspace), self._callers.ceiling_of
        return await refuse_call(tool, calling, self._rules.sinks, partial(find_ceiling, session), leaves=leaves)

    async def note_use(self, found: FoundCaller, tool: Tool) -> None:
        """Stores what a call leaves in the session's workspace, before it does. Contract: flow 8."""
        if uses_workspace(tool):
            agent = self._rules.agents.get(found.session.agent_id)
            left = left_by(tool, found.session.taint, agent, self._effects_of(found, tool))
            await self._callers.note_use(found.session, left)

    async def run(self, found: FoundCaller, tool: Tool, arguments: JsonObject) -> GateAnswer:
        """The tool's answer, whoever may have it; `note_use` comes first."""
        output = await tool.call(ToolContext(found.caller), arguments)
        output, _ = await ask_of_result(self._ruled(found, tool, arguments), output, self._rules)
        return GateAnswer(answer_of(output.text, is_error=output.is_error), output.classification)

    async def tell(self, found: FoundCaller, tool: Tool, ended: GateAnswer) -> JsonObject:
        """The answer of a call that has just ended, `withheld` if it may not go to the caller."""
        session, name = found.session, tool.schema.name
        if not takes(found.clearance, EVERYTHING):
            # What the session held when the call began was cleared for the caller; either may have changed meanwhile.
            made_of = ended.brought.join(session.taint)
            if name in SESSION_TOOLS:
                made_of = made_of.join(await self._callers.held_by(found))
            elif uses_workspace(tool):
                present, _ = await self._callers.session_of(found.caller)
                made_of = join_all((made_of, session.workspace, present.workspace))
            if not takes(found.clearance, made_of):
                return answer_of(WITHHELD, is_error=False)
        return ended.answer

    async def made_of(self, found: FoundCaller, tool: Tool, brought: Classification) -> Classification:
        """What the answer of a call that has just ended is made of; everything if that cannot be read now."""
        try:
            held = (await self._callers.held_by(found)).join(found.session.workspace)
            if uses_workspace(tool):
                held = held.join((await self._callers.session_of(found.caller))[0].workspace)
        except (NotFound, Unavailable):  # the answer is gone with its session, or known to have come
            return EVERYTHING
        return brought.join(held)

    def may_tell(self, found: FoundCaller, tool: Tool, made_of: Classification) -> bool:
        """Whether the caller may have the outcome of an earlier call, whatever rights that one had."""
        held = found.session.taint.join(brought_by(tool, found.session.workspace))
        return takes(found.clearance, held.join(made_of))

    def work_of(self, approval: Approval) -> ApprovedWork | None:
        """What carries out the approved call from outside; None in a process without its tool."""
        asked = approval.calls[0]
        tool = self._tools.find(asked.tool)
        if tool is None:
            return None
        return ApprovedWork(asked.tool, tool.is_idempotent, partial(self._carry_out, tool, asked))

    async def _carry_out(self, tool: Tool, asked: AskedCall, found: FoundCaller) -> CallOutcome:
        """Carries out the call, byte for byte as it was asked, if it still is what was approved."""
        tool = await self.present(found, tool, json.loads(asked.arguments))
        if (refusal := await self._refuse_approved(tool, asked, found)) is not None:
            return CallOutcome(json.dumps(refusal, ensure_ascii=False))
        said = await self.decide(found, tool, json.loads(asked.arguments))
        if said.action is Action.BLOCK:  # the rules have changed since it was asked about
            return CallOutcome(refuse_by_rule(said).text)
        found = replace(found, caller=replace(found.caller, files=asked.files))
        await self.note_use(found, tool)
        ended = await self.run(found, tool, without_redacted(said, tool, json.loads(asked.arguments)))
        answer = json.dumps(await self.tell(found, tool, ended), ensure_ascii=False)
        return CallOutcome(answer, await self.made_of(found, tool, ended.brought))

    async def _refuse_approved(self, tool: Tool, asked: AskedCall, found: FoundCaller) -> JsonObject | None:
        name = tool.schema.name
        if self.given_to(found).find(name) is None:
            return _refused("tool_not_given", f"Tool is not available to this session any more: {name!r}.")
        if hash_of_definition(tool) != asked.definition:
            return _refused(
                "approval_outdated",
                f"Tool has changed since its call was approved: {name!r}. Call again with a new Idempotency-Key.",
            )
        workspace = self._workspaces.of_session(found.session)
        if asked.workspace is not None and not asked.finds(await hash_of_workspace(workspace)):
            return _refused(
                "approval_outdated",
                "Workspace has changed since the command was approved. Call again with a new Idempotency-Key.",
            )
        refusal = await self.refuse(found, tool)
        return None if refusal is None else answer_of(refusal.text, is_error=True)


def _refused(code: str, message: str) -> JsonObject:
    return {"status": "error", "code": code, "error": message}


def answer_of(text: str, *, is_error: bool) -> JsonObject:
    """A tool's answer as an object; plain text becomes its `text`."""
    text = whole_text(text)
    try:
        value = json.loads(text)
        if "\\ud" in text.lower():  # half a character may be spelled out
            value = json.loads(whole_text(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, dict):
        return cast(JsonObject, value)
    return {"status": "error" if is_error else "ok", "result": value}
