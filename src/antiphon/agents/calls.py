"""Tool calls from outside: by HTTP, the command line and MCP, acting as a session. Contract: tools 1."""

import json
from collections.abc import Callable
from typing import cast

from antiphon.agents.model import ToolSchema
from antiphon.agents.toolset import ToolContext, Toolset
from antiphon.domain.actor import Principal
from antiphon.domain.errors import Denied, Invalid, NotFound
from antiphon.domain.ids import Ids
from antiphon.domain.message import JsonObject
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.callers import Callers, FoundCaller
from antiphon.engine.access.reach import target_name
from antiphon.engine.rules import Rules

MAX_IDEMPOTENCY_KEY = 200


class ToolCalls:
    """The tools, for callers that act as a session without being one of its runs."""

    def __init__(self, tools: Toolset, callers: Callers, rules: Rules, ids: Ids) -> None:
        self._tools = tools
        self._callers = callers
        self._rules = rules
        self._ids = ids

    @property
    def schemas(self) -> list[ToolSchema]:
        """The schemas of all tools, whichever sessions have them."""
        return self._tools.schemas

    async def call(
        self,
        principal: Principal,
        target: NamedTarget,
        name: str,
        arguments: JsonObject,
        *,
        idempotency_key: str | None = None,
    ) -> JsonObject:
        """The tool's answer, also for failures. Repeating the `idempotency_key` returns the first call's answer.

        Raises `NotFound` for a tool that does not exist (`unknown_tool`) and for a session the principal may not see,
        `Denied` for a tool that the session does not have.
        """
        found = await self._callers.find(principal, target, self._call_id(idempotency_key))
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
        output = await tool.call(ToolContext(found.caller), arguments)
        return _object(output.text, is_error=output.is_error)

    async def acting_target(
        self, bound: str | None, named: str | None, read_target: Callable[[str], NamedTarget]
    ) -> NamedTarget | None:
        """The session that a request acts as: the one its token is bound to, else the one it names, if any.

        Raises `Denied` (`token_bound`) if a bound token names another session; either address may be in any form.
        """
        if bound is None:
            return None if named is None else read_target(named)
        target = read_target(bound)
        if named is not None and named != bound and not await self._callers.are_one(target, read_target(named)):
            raise Denied(
                f"Token is bound to a session: {target_name(target)!r}. Name that session, or none.", code="token_bound"
            )
        return target

    async def schemas_for(self, principal: Principal, target: NamedTarget) -> list[ToolSchema]:
        """The schemas of the session's tools. Raises `NotFound`."""
        found = await self._callers.find(principal, target, "schemas")
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
