"""Carries out tool calls from outside, if what they carry and bring may flow. Contract: flow 3, 7, tools 1.

Such a call acts as its session, so it carries the session's taint. Its answer goes to the person who calls.
"""

import json
from typing import NamedTuple, cast

from antiphon.agents.call_flow import (
    brought_by,
    carried_by,
    may_leave,
    needs_no_decision,
    refuse_call,
    refuse_source,
)
from antiphon.agents.text import whole_text
from antiphon.agents.toolset import Tool, ToolContext, ToolOutput
from antiphon.domain.agent import Effect
from antiphon.domain.classification import EVERYTHING, Classification, join_all
from antiphon.domain.errors import NotFound, Unavailable
from antiphon.domain.message import JsonObject
from antiphon.engine.access.callers import Callers, FoundCaller
from antiphon.engine.rules import Rules
from antiphon.policy.approvals import RUN_COMMAND
from antiphon.policy.flow import WITHHELD, may_enter
from antiphon.policy.session_tools import SESSION_TOOLS


class GateAnswer(NamedTuple):
    answer: JsonObject
    brought: Classification
    """What the tool's result added to what the session held."""


class OutsideGate:
    """Decides by the session as it was when the caller was found."""

    def __init__(self, callers: Callers, rules: Rules) -> None:
        self._callers = callers
        self._rules = rules

    async def refuse(self, found: FoundCaller, tool: Tool, effects: frozenset[Effect]) -> ToolOutput | None:
        """The refusal of a call that may not be made. Reads nothing if everything is public."""
        session = found.session
        leaves = may_leave(effects, self._rules.agents.get(session.agent_id))
        brought = brought_by(tool, session.workspace)
        carried = carried_by(tool, session.taint, session.workspace) if leaves else session.taint
        if needs_no_decision(brought, carried):
            return None
        if not may_enter(brought, session.taint) and not may_enter(brought, await self._callers.ceiling_of(session)):
            return refuse_source(tool)
        return refuse_call(tool, carried, self._rules.sinks, leaves=leaves)

    async def note_use(self, found: FoundCaller, tool: Tool) -> None:
        """Stores what a command leaves in the session's workspace, before it does. Contract: flow 8."""
        if tool.schema.name == RUN_COMMAND:
            await self._callers.note_use(found.session, found.session.taint.join(tool.classification))

    async def run(self, found: FoundCaller, tool: Tool, arguments: JsonObject) -> GateAnswer:
        """The tool's answer, whoever may have it; `note_use` comes first."""
        output = await tool.call(ToolContext(found.caller), arguments)
        return GateAnswer(answer_of(output.text, is_error=output.is_error), output.classification)

    async def tell(self, found: FoundCaller, tool: Tool, ended: GateAnswer) -> JsonObject:
        """The answer of a call that has just ended, `withheld` if it may not go to the caller."""
        session, name = found.session, tool.schema.name
        if not may_enter(EVERYTHING, found.clearance):
            # What the session held when the call began was cleared for the caller; either may have changed meanwhile.
            made_of = ended.brought.join(session.taint)
            if name in SESSION_TOOLS:
                made_of = made_of.join(await self._callers.held_by(found))
            elif name == RUN_COMMAND:
                present, _ = await self._callers.session_of(found.caller)
                made_of = join_all((made_of, session.workspace, present.workspace))
            if not may_enter(made_of, found.clearance):
                return answer_of(WITHHELD, is_error=False)
        return ended.answer

    async def made_of(self, found: FoundCaller, tool: Tool, brought: Classification) -> Classification:
        """What the answer of a call that has just ended is made of; everything if that cannot be read now."""
        try:
            held = (await self._callers.held_by(found)).join(found.session.workspace)
            if tool.schema.name == RUN_COMMAND:
                held = held.join((await self._callers.session_of(found.caller))[0].workspace)
        except (NotFound, Unavailable):  # the answer is gone with its session, or known to have come
            return EVERYTHING
        return brought.join(held)

    def may_tell(self, found: FoundCaller, tool: Tool, made_of: Classification) -> bool:
        """Whether the caller may have the outcome of an earlier call, whatever rights that one had."""
        held = found.session.taint.join(brought_by(tool, found.session.workspace))
        return may_enter(held.join(made_of), found.clearance)


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
