"""What written rules and checks say of a tool call, before it begins and of its result. Contract: flow 9.

The one place for calls: of runs, from outside, approved ones, and those that are only simulated.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from msgspec.structs import replace

from antiphon.agents.toolset import Foreseeing, Tool, ToolContext, ToolOutput
from antiphon.domain.agent import Effect
from antiphon.domain.classification import Classification
from antiphon.domain.errors import AntiphonError
from antiphon.domain.message import JsonObject
from antiphon.domain.session import Session
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.facts import Acting, KnownFacts, facts_of
from antiphon.engine.rules import Rules
from antiphon.policy.session_tools import invoked_by
from antiphon.policy.written.fields import CALL_HOOKS, RULE, Action, Hook
from antiphon.policy.written.rule_set import NOTHING_SAID, RuleDecision, join_decisions

_NOT_ALLOWED = "A rule of this installation does not allow this."


@runtime_checkable
class CarriesSecret(Protocol):
    """A tool whose calls may carry a secret of the settings along."""

    @property
    def carries_secret(self) -> bool: ...


@runtime_checkable
class HasAliases(Protocol):
    """A tool that takes some arguments under other names, too."""

    @property
    def aliases(self) -> Mapping[str, str]:
        """Other names, with the names that they stand for."""
        ...


class RuledCall(NamedTuple):
    """A call as rules see it."""

    acting: Acting
    tool: Tool
    arguments: JsonObject
    effects: frozenset[Effect]
    server: str | None
    """The MCP server that offers the tool."""
    sink: Classification
    """What may go to the tool."""
    caller: Caller


async def ask_before(call: RuledCall, rules: Rules) -> RuleDecision:
    """What all hooks before the call say together; redactions concern the arguments as the model wrote them."""
    hooks = [hook for hook in _hooks_of(call) if rules.written.asks(hook)]
    if not hooks:
        return NOTHING_SAID
    facts = _facts(call, rules)
    if Hook.AGENT_INVOCATION in hooks:
        facts |= await _facts_of_invocation(call)
    said = join_decisions(*[rules.written.decide(hook, facts) for hook in hooks])
    if said.action is Action.BLOCK:
        return said
    return join_decisions(said, *[await rules.written.ask_checks(hook, facts) for hook in hooks])


async def ask_of_result(call: RuledCall, output: ToolOutput, rules: Rules) -> tuple[ToolOutput, RuleDecision]:
    """The result as it may be told to whoever called, and what was decided."""
    if not rules.written.asks(Hook.POST_TOOL_RESPONSE):
        return output, NOTHING_SAID
    facts = _facts(call, rules) | {"text": output.text}
    said = await rules.written.ask(Hook.POST_TOOL_RESPONSE, facts)
    if said.action is Action.BLOCK:
        return replace(output, text=_refusal_text(said, "The call ran; its result is withheld."), is_error=True), said
    return replace(output, text=said.redact(output.text).text) if said.redacts else output, said


def without_redacted(said: RuleDecision, tool: Tool, arguments: JsonObject) -> JsonObject:
    """The arguments without what rules take out of them; the same object if nothing is."""
    if not said.redacts:
        return arguments
    named = _named(tool, arguments)
    left = said.redact_arguments(named)
    return arguments if left is named else left


def _named(tool: Tool, arguments: JsonObject) -> JsonObject:
    """The arguments by the names that the tool's schema has."""
    if not isinstance(tool, HasAliases) or tool.aliases.keys().isdisjoint(arguments):
        return arguments
    aliases = {alias: name for alias, name in tool.aliases.items() if name not in arguments}
    return {aliases.get(name, name): value for name, value in arguments.items()}


def refuse_by_rule(said: RuleDecision) -> ToolOutput:
    """The result of a call that a rule blocks."""
    return ToolOutput(_refusal_text(said, "The call did not run."), is_error=True)


def reason_of(said: RuleDecision) -> str:
    """Why somebody is asked, for people."""
    return f"{said.message or 'A rule asks before this.'} (Rule {', '.join(said.rules)}.)"


def _refusal_text(said: RuleDecision, what: str) -> str:
    answer = {
        "status": "forbidden",
        "code": RULE,
        "rules": list(said.rules),
        "error": f"{said.message or _NOT_ALLOWED} {what}",
    }
    return json.dumps(answer, ensure_ascii=False)


def _hooks_of(call: RuledCall) -> list[Hook]:
    pre, mcp, secret = CALL_HOOKS
    tool = call.tool
    return [
        pre,
        *([mcp] if call.server is not None else ()),
        *([secret] if isinstance(tool, CarriesSecret) and tool.carries_secret else ()),
        *([Hook.AGENT_INVOCATION] if invoked_by(tool.schema.name, call.arguments) is not None else ()),
    ]


def _facts(call: RuledCall, rules: Rules) -> KnownFacts:
    return facts_of(call.acting, rules) | {
        "tool": call.tool.schema.name,
        "server": call.server,
        "effects": frozenset(effect.value for effect in call.effects),
        "arguments": _named(call.tool, call.arguments),
        "sink.level": call.sink.level.name,
    }


async def _facts_of_invocation(call: RuledCall) -> KnownFacts:
    """How another session is reached, and the agent of that, as far as the caller may know it."""
    return {
        "act": invoked_by(call.tool.schema.name, call.arguments),
        "target.agent": await _target_agent(call),
    }


async def _target_agent(call: RuledCall) -> str | None:
    arguments = _named(call.tool, call.arguments)
    named = arguments.get("agentId")
    if isinstance(named, str):
        return named
    for name in ("sessionKey", "target"):
        key = arguments.get(name)
        if isinstance(key, str) and key.startswith("agent:"):
            return key.split(":")[1]
    if not isinstance(call.tool, Foreseeing):
        return call.acting.session.agent_id
    try:
        foreseen = await call.tool.foresee(ToolContext(call.caller), call.arguments)
    except AntiphonError:
        return None  # the call fails by itself
    sink = None if foreseen is None else foreseen.sink
    return sink.agent_id if isinstance(sink, Session) else call.acting.session.agent_id
