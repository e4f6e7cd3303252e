"""Tool calls from outside: by HTTP, the command line and MCP, acting as a session. Contract: tools 1."""

import json
from collections.abc import Callable
from typing import cast

from antiphon.agents.approving import RUN_COMMAND, asked_from_outside, effects_of, is_walled, refusal_of
from antiphon.agents.model import ToolSchema
from antiphon.agents.toolset import Tool, ToolContext, Toolset
from antiphon.domain.errors import Conflict, Denied, Invalid, NotFound
from antiphon.domain.ids import Ids
from antiphon.domain.message import JsonObject
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.callers import Callers, FoundCaller
from antiphon.engine.access.reach import Outsider, TokenHolder, target_name
from antiphon.engine.approvals.outside import OutsideApprovals
from antiphon.engine.ledger.run_log import OUTCOME_UNKNOWN
from antiphon.engine.rules import Rules
from antiphon.policy.approvals import NeedsApproval, decide_call

MAX_IDEMPOTENCY_KEY = 200
PENDING = "The call waits for approval and has not run. Once it is approved, the same call with the same key runs it."


class ToolCalls:
    """The tools, for callers that act as a session without being one of its runs."""

    def __init__(
        self, tools: Toolset, callers: Callers, approvals: OutsideApprovals, rules: Rules, *, ids: Ids
    ) -> None:
        self._tools = tools
        self._callers = callers
        self._approvals = approvals
        self._rules = rules
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
        """The tool's answer, also for failures. Repeating the `idempotency_key` returns the first call's answer.

        Raises `NotFound` for a tool that does not exist (`unknown_tool`) and for a session the actor may not see,
        `Denied` for a tool that the session does not have, `Conflict` for a key that was used for another call. A call
        that needs an approval answers `pending`; repeated after the decision, it runs.
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
                "See agents.list[].tools, tools.subagents.tools and access.roles.guest.tools in the configuration.",
                code="tool_not_given",
            )
        effects = effects_of(tool, is_walled=name == RUN_COMMAND and await self._is_walled(found.caller))
        need = decide_call(self._rules.approval, name, effects, is_from_server=False)
        if isinstance(need, NeedsApproval):
            return await self._call_approved(found.caller, tool, arguments, need, has_key=idempotency_key is not None)
        output = await tool.call(ToolContext(found.caller), arguments)
        return _object(output.text, is_error=output.is_error)

    async def _call_approved(
        self, caller: Caller, tool: Tool, arguments: JsonObject, need: NeedsApproval, *, has_key: bool
    ) -> JsonObject:
        """The answer of a call that needs an approval: `pending` until then. It runs once. Contract: approvals 5.

        A call without an `Idempotency-Key` is the same as the next with the same arguments, until it has run.
        """
        asked = asked_from_outside(tool, json.dumps(arguments, ensure_ascii=False), need)
        origin = caller.call_id if has_key else f"{caller.session}:same:{caller.principal}:{asked.tool}:{asked.sha256}"
        approval = await self._approvals.ask(caller, origin, asked)
        (stored,) = approval.calls
        if (stored.tool, stored.sha256) != (asked.tool, asked.sha256):
            raise Conflict("Idempotency-Key was used for another call. Use a new one.", code="idempotency_key_reused")
        if approval.is_pending:
            return {"status": "pending", "approvalId": approval.id, "message": PENDING}
        if refusal := refusal_of(approval, stored):
            await self._approvals.forget(approval, keeps_origin=has_key)
            return _object(refusal.text, is_error=True)
        if stored.definition != asked.definition:
            raise Conflict(
                f"Tool has changed since its call was approved: {asked.tool!r}. Call again with a new Idempotency-Key.",
                code="approval_outdated",
            )
        if approval.outcome is not None:
            return _object(approval.outcome, is_error=False)
        if not await self._approvals.begin(approval, keeps_origin=has_key) and not tool.is_idempotent:
            return {"status": "error", "code": "outcome_unknown", "error": OUTCOME_UNKNOWN}
        output = await tool.call(ToolContext(caller), arguments)
        answer = _object(output.text, is_error=output.is_error)
        await self._approvals.end(approval, json.dumps(answer, ensure_ascii=False))
        return answer

    async def _is_walled(self, caller: Caller) -> bool:
        session, standing = await self._callers.session_of(caller)
        return is_walled(standing, is_sandboxed=self._rules.are_sandboxed(session))

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
        if not 0 < len(idempotency_key) <= MAX_IDEMPOTENCY_KEY or not idempotency_key.isprintable():
            raise Invalid(
                f"Idempotency-Key is not valid: {idempotency_key[:40]!r}. "
                f"Use 1 to {MAX_IDEMPOTENCY_KEY} printable characters.",
                code="invalid_idempotency_key",
            )
        return idempotency_key


def _object(text: str, *, is_error: bool) -> JsonObject:
    """A tool's answer as an object; plain text becomes its `text`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, dict):
        return cast(JsonObject, value)
    return {"status": "error" if is_error else "ok", "result": value}
