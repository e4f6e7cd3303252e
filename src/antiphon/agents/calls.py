"""Tool calls from outside: by HTTP, the command line and MCP, acting as a session. Contract: tools 1."""

import json
from collections.abc import Callable
from typing import NamedTuple

from antiphon.agents.approving import (
    has_arguments,
    may_ask,
    refusal_of,
)
from antiphon.agents.call_rules import refuse_by_rule, without_redacted
from antiphon.agents.model import ToolSchema
from antiphon.agents.outside_gate import OutsideGate, answer_of
from antiphon.agents.text import whole_text
from antiphon.agents.toolset import Tool, Toolset
from antiphon.domain.approval import Approval, AskedCall, hash_of_text
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import Conflict, Denied, NotFound
from antiphon.domain.idempotency import parse_idempotency_key
from antiphon.domain.ids import Ids
from antiphon.domain.message import JsonObject, text_of
from antiphon.domain.standing_approval import StandingApproval
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.callers import Callers, FoundCaller
from antiphon.engine.access.reach import Outsider, TokenHolder, target_name
from antiphon.engine.calls.calls import CallOutcome, KeyedRequest, OutsideCalls
from antiphon.engine.calls.steps import Told
from antiphon.policy.flow import WITHHELD
from antiphon.policy.written.fields import Action

PENDING = (
    "The call waits for approval and has not run. It runs once it is approved; after that, the same call with the same "
    "key has its result."
)
UNDER_WAY = "The call was approved and is under way. The same call with the same key has its result soon."
RUNNING = "The call is under way. The same call with the same key has its result once it is over."
REUSED = "Idempotency-Key was used for another call. Use a new one."


class _IncomingCall(NamedTuple):
    """A call as it comes now, whether or not it came before."""

    actor: Outsider
    target: NamedTarget
    key: str | None
    found: FoundCaller
    tool: Tool
    arguments: JsonObject
    text: str
    """The arguments as they are approved."""

    @property
    def name(self) -> str:
        return self.tool.schema.name

    @property
    def origin(self) -> str:
        """Without a key, the call is the same as the next with the same arguments, until it has its answer."""
        caller = self.found.caller
        if self.key is not None:
            return caller.call_id
        return f"{caller.session}:same:{caller.principal}:{self.name}:{hash_of_text(self.text)}"

    @property
    def sha256(self) -> str:
        return hash_of_text(f"{self.name} {self.text}")


class ToolCalls:
    """The tools, for callers that act as a session without being one of its runs."""

    def __init__(self, tools: Toolset, callers: Callers, gate: OutsideGate, calls: OutsideCalls, *, ids: Ids) -> None:
        self._tools = tools
        self._callers = callers
        self._gate = gate
        self._calls = calls
        self._ids = ids

    @property
    def schemas(self) -> list[ToolSchema]:
        """The schemas of all tools, whichever sessions have them."""
        return self._tools.schemas

    async def call(
        self,
        actor: Outsider,
        target: NamedTarget,
        name: str,
        arguments: JsonObject,
        *,
        idempotency_key: str | None = None,
    ) -> JsonObject:
        """The tool's answer, also for failures.

        Repeating the `idempotency_key` returns the first answer; a tool that is idempotent runs again.

        Raises `NotFound` for a tool that does not exist (`unknown_tool`) and for a session the actor may not see,
        `Denied` for a tool that the session does not have, `Conflict` for a key that was used for another call. A call
        that needs an approval answers `pending`; repeated after the decision, it has the result.
        """
        found = await self._callers.find(actor, target, self._call_id(idempotency_key))
        tool, given = self._tools.find(name), self._gate.given_to(found)
        if tool is None:
            raise NotFound(
                f"Tool not found: {name[:80]!r}. This session has: {', '.join(given.names)}.", code="unknown_tool"
            )
        if given.find(name) is None:
            raise Denied(
                f"Tool is not available to this session: {name!r}. "
                "See agents.list[].tools, tools.subagents.tools and access.roles in the configuration.",
                code="tool_not_given",
            )
        tool = await self._gate.present(found, tool, arguments)
        said = await self._gate.decide(found, tool, arguments)
        arguments = without_redacted(said, tool, arguments)
        call = _IncomingCall(actor, target, idempotency_key, found, tool, arguments, _text_of(arguments))
        if call.key is not None and (may_ask(tool) or said.action is Action.APPROVE):
            told = await self._calls.find(call.origin)
            if told is not None:
                return await self._tell(told, call)  # whether or not it may come or would have to ask now
        if refusal := await self._gate.refuse(found, tool):
            return answer_of(refusal.text, is_error=True)
        if said.action is Action.BLOCK:
            return answer_of(refuse_by_rule(said).text, is_error=True)
        if asked := await self._gate.asked(found, tool, call.text, said):
            if refusal := await self._gate.refuse_words(found, tool, arguments):
                return answer_of(refusal.text, is_error=True)
            told = await self._calls.ask(found.caller, call.origin, asked)
            if not isinstance(told, StandingApproval):
                return await self._tell(told, call)
        return await self._run(call)

    async def _run(self, call: _IncomingCall) -> JsonObject:
        """The answer of a call that needs no approval; with a key it runs once. Contract: tools 1."""
        tool = call.tool
        await self._gate.note_use(call.found, tool)
        if tool.is_idempotent or call.key is None or not may_ask(tool):
            ended = await self._gate.run(call.found, tool, call.arguments)
            return await self._gate.tell(await self._present(call), tool, ended)

        async def carry_out(found: FoundCaller) -> CallOutcome:
            ended = await self._gate.run(found, tool, call.arguments)
            return CallOutcome(
                json.dumps(ended.answer, ensure_ascii=False), await self._gate.made_of(found, tool, ended.brought)
            )

        return await self._tell(
            await self._calls.once(KeyedRequest(call.actor, call.target, call.key, call.sha256), carry_out), call
        )

    async def _tell(self, told: Told, call: _IncomingCall) -> JsonObject:
        """What became of a call that came before, as far as the caller may have it now."""
        if isinstance(told, Approval):
            return await self._resume(told, call)
        if told.sha256 != call.sha256:
            raise Conflict(REUSED, code="idempotency_key_reused")
        settled = told if told.outcome is not None else await self._calls.settled(told.id, told.session) or told
        if settled.outcome is None:
            return {"status": "pending", "message": RUNNING}
        is_told = self._gate.may_tell(await self._present(call), call.tool, settled.made_of)
        return answer_of(settled.outcome if is_told else WITHHELD, is_error=False)

    async def _present(self, call: _IncomingCall) -> FoundCaller:
        return await self._callers.present(call.found, call.actor, call.target, self._call_id(call.key))

    async def _resume(self, approval: Approval, call: _IncomingCall) -> JsonObject:
        """What became of the call that was asked about."""
        stored = next(
            (asked for asked in approval.calls if asked.tool == call.name and has_arguments(asked, call.text)), None
        )
        if stored is None:
            raise Conflict(REUSED, code="idempotency_key_reused")
        if approval.is_pending:
            return _pending(approval, PENDING)
        found = await self._answer(approval, stored)
        if found is None:
            return _pending(approval, UNDER_WAY)
        answer, made_of = found
        if not self._gate.may_tell(await self._present(call), call.tool, approval.made_of.join(made_of)):
            answer = answer_of(WITHHELD, is_error=False)
        if call.key is None:
            await self._calls.forget(approval, call.origin)
        return answer

    async def _answer(self, approval: Approval, call: AskedCall) -> tuple[JsonObject, Classification] | None:
        """The answer of a call that was decided, and what it brought; None if it is not over in time."""
        if refusal := refusal_of(approval, call):
            return answer_of(refusal.text, is_error=True), PUBLIC
        if approval.run is not None:
            result = await self._calls.find_result(approval, call)
            return None if result is None else (answer_of(text_of(result.content), is_error=result.is_error), PUBLIC)
        settled = await self._calls.settled(approval.id, approval.session)
        if settled is None or settled.outcome is None:
            return None
        return answer_of(settled.outcome, is_error=False), settled.made_of

    async def acting_target(
        self, holder: TokenHolder | None, named: str | None, read_target: Callable[[str], NamedTarget]
    ) -> NamedTarget | None:
        """The session that a request acts as: the one its token is bound to, else the one it names, if any.

        Raises `Denied` (`token_bound`) if a bound token names another session; either address may be in any form.
        """
        if holder is None:
            return None if named is None else read_target(named)
        bound, target = holder.session_key, read_target(holder.session_key)
        if named is not None and named != bound and not await self._callers.are_one(target, read_target(named)):
            raise Denied(
                f"Token is bound to a session: {target_name(target)!r}. Name that session, or none.", code="token_bound"
            )
        return target

    async def schemas_for(self, actor: Outsider, target: NamedTarget) -> list[ToolSchema]:
        """The schemas of the session's tools. Raises `NotFound`."""
        found = await self._callers.find(actor, target, "schemas")
        return (await self._gate.shown_to(found)).schemas

    def _call_id(self, idempotency_key: str | None) -> str:
        if idempotency_key is None:
            return self._ids.new("call")
        return parse_idempotency_key(idempotency_key)


def _text_of(arguments: JsonObject) -> str:
    """The bytes that are approved."""
    return whole_text(json.dumps(arguments, ensure_ascii=False))


def _pending(approval: Approval, message: str) -> JsonObject:
    return {"status": "pending", "approvalId": approval.id, "message": message}
