"""Tool calls from outside: by HTTP, the command line and MCP, acting as a session. Contract: tools 1."""

import json
from collections.abc import Callable
from typing import NamedTuple

from antiphon.agents.approving import (
    asked_from_outside,
    effects_of,
    hash_of_workspace,
    in_workspace,
    is_walled,
    may_ask,
    refusal_of,
)
from antiphon.agents.model import ToolSchema
from antiphon.agents.outside_gate import OutsideGate, answer_of
from antiphon.agents.text import whole_text
from antiphon.agents.toolset import Tool, Toolset
from antiphon.domain.agent import Effect
from antiphon.domain.approval import Approval, AskedCall, hash_of_text
from antiphon.domain.errors import Conflict, Denied, NotFound
from antiphon.domain.idempotency import parse_idempotency_key
from antiphon.domain.ids import Ids
from antiphon.domain.message import JsonObject, text_of
from antiphon.domain.standing_approval import StandingApproval
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.callers import Callers, FoundCaller
from antiphon.engine.access.reach import Outsider, TokenHolder, target_name
from antiphon.engine.approvals.outside import OutsideApprovals
from antiphon.engine.ledger.waits import LONGEST_WAIT
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.policy.approvals import RUN_COMMAND, NeedsApproval, decide_call
from antiphon.policy.flow import WITHHELD

PENDING = (
    "The call waits for approval and has not run. It runs once it is approved; after that, the same call with the same "
    "key has its result."
)
UNDER_WAY = "The call was approved and is under way. The same call with the same key has its result soon."


class _RepeatedCall(NamedTuple):
    """A call that was asked about, as it comes now."""

    tool: str
    arguments: str
    origin: str
    has_key: bool


class ToolCalls:
    """The tools, for callers that act as a session without being one of its runs."""

    def __init__(
        self,
        tools: Toolset,
        callers: Callers,
        approvals: OutsideApprovals,
        rules: Rules,
        *,
        workspaces: Workspaces,
        ids: Ids,
    ) -> None:
        self._tools = tools
        self._callers = callers
        self._approvals = approvals
        self._rules = rules
        self._workspaces = workspaces
        self._ids = ids
        self._gate = OutsideGate(callers, rules)

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

        Repeating the `idempotency_key` returns the first answer of a session tool, and of a call that had to ask.

        Raises `NotFound` for a tool that does not exist (`unknown_tool`) and for a session the actor may not see,
        `Denied` for a tool that the session does not have, `Conflict` for a key that was used for another call. A call
        that needs an approval answers `pending`; repeated after the decision, it has the result.
        """
        found = await self._callers.find(actor, target, self._call_id(idempotency_key))
        tool, given = self._tools.find(name), self._given_to(found)
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
        effects = self._effects_of(found, tool)
        if refusal := await self._gate.refuse(found, tool, effects):
            return answer_of(refusal.text, is_error=True)
        need = decide_call(self._rules.approval, name, effects, found.standing, is_from_server=False)
        has_key = idempotency_key is not None
        if isinstance(need, NeedsApproval):
            return await self._call_approved(found, tool, arguments, need, has_key=has_key)
        if has_key and may_ask(tool) and (asked := await self._approvals.find(found.caller.call_id)) is not None:
            # It had to ask when it came first; that it need not now does not make it another call.
            repeated = _RepeatedCall(name, _text_of(arguments), found.caller.call_id, True)
            return await self._resume(asked, repeated, found, tool)
        return await self._gate.run(found, tool, arguments)

    async def _call_approved(
        self, found: FoundCaller, tool: Tool, arguments: JsonObject, need: NeedsApproval, *, has_key: bool
    ) -> JsonObject:
        """The answer of a call that needs an approval: `pending` until then. It runs once. Contract: approvals 5.

        A call without an `Idempotency-Key` is the same as the next with the same arguments, until it has its answer.
        """
        caller = found.caller
        asked = asked_from_outside(tool, _text_of(arguments), need)
        if asked.tool == RUN_COMMAND:
            workspace = self._workspaces.of_session(found.session)
            asked = in_workspace(asked, await hash_of_workspace(workspace))
        origin = caller.call_id if has_key else f"{caller.session}:same:{caller.principal}:{asked.tool}:{asked.sha256}"
        approval = await self._approvals.ask(caller, origin, asked)
        if isinstance(approval, StandingApproval):
            return await self._gate.run(found, tool, arguments)
        return await self._resume(approval, _RepeatedCall(asked.tool, asked.arguments, origin, has_key), found, tool)

    async def _resume(self, approval: Approval, repeated: _RepeatedCall, found: FoundCaller, tool: Tool) -> JsonObject:
        """What became of the call that was asked about."""
        bytes_of = (repeated.tool, hash_of_text(repeated.arguments))
        stored = next((call for call in approval.calls if (call.tool, call.sha256) == bytes_of), None)
        if stored is None:
            raise Conflict("Idempotency-Key was used for another call. Use a new one.", code="idempotency_key_reused")
        if approval.is_pending:
            return _pending(approval, PENDING)
        answer = await self._answer(approval, stored)
        if answer is None:
            return _pending(approval, UNDER_WAY)
        if not self._gate.may_tell(found, tool, approval):
            answer = answer_of(WITHHELD, is_error=False)
        if not repeated.has_key:
            await self._approvals.forget(approval, repeated.origin)
        return answer

    async def _answer(self, approval: Approval, call: AskedCall) -> JsonObject | None:
        """The answer of a call that was decided; None if it is not over in time."""
        if refusal := refusal_of(approval, call):
            return answer_of(refusal.text, is_error=True)
        if approval.run is not None:
            result = await self._approvals.find_result(approval, call)
            return None if result is None else answer_of(text_of(result.content), is_error=result.is_error)
        outcome = await self._approvals.wait_outcome(approval, LONGEST_WAIT)
        return None if outcome is None else answer_of(outcome, is_error=False)

    def _effects_of(self, found: FoundCaller, tool: Tool) -> frozenset[Effect]:
        is_sandboxed = self._rules.are_sandboxed(found.session)
        return effects_of(tool, is_walled=is_walled(found.standing, is_sandboxed=is_sandboxed))

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
        return self._given_to(found).schemas

    def _given_to(self, found: FoundCaller) -> Toolset:
        return self._tools.for_session(found.caller.agent_id, found.depth, found.standing, self._rules)

    def _call_id(self, idempotency_key: str | None) -> str:
        if idempotency_key is None:
            return self._ids.new("call")
        return parse_idempotency_key(idempotency_key)


def _text_of(arguments: JsonObject) -> str:
    """The bytes that are approved."""
    return whole_text(json.dumps(arguments, ensure_ascii=False))


def _pending(approval: Approval, message: str) -> JsonObject:
    return {"status": "pending", "approvalId": approval.id, "message": message}
