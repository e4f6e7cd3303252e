"""Operations on tools, for people and programs that act as a session. Contract: gateway 4, tools 1."""

from typing import Any

from msgspec import field

from antiphon.agents.model import ToolSchema
from antiphon.domain.errors import Invalid
from antiphon.domain.targets import NamedTarget
from antiphon.domain.tokens import TokenScope
from antiphon.gateway.bodies import LARGE_BYTES
from antiphon.gateway.operations.operation import Header, Http, OperationRequest, Params, TargetKind, operation
from antiphon.policy.acts import Act
from antiphon.wire import tools as wire


class ListTools(Params, frozen=True, kw_only=True):
    session_key: str | None = None


class InvokeTool(Params, frozen=True, kw_only=True):
    name: str
    session_key: str | None = None
    """The session that the call acts as. A token bound to a session needs none and can name no other."""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    idempotency_key: str | None = None
    """A repeated call with the same key is the same call."""


@operation("tools.list", "GET /tools", scope=TokenScope.READ, target=TargetKind.SESSION)
async def list_tools(request: OperationRequest, params: ListTools) -> wire.ToolList:
    """Lists all tools, or those of a session, with the JSON Schema of their arguments.

    Tools of MCP servers name their server; only runs of agents call them. Without a session, owners see them.
    """
    calls = request.gateway.tool_calls
    target = await _acting_target(request, params.session_key)
    tools = {schema.name: _shape(schema, None) for schema in (calls.schemas if target is None else ())}
    if target is not None:
        offered = [await request.gateway.offered_tools.of_session(request.principal, target)]
    elif await request.services.people.may(request.principal, Act.SET_MODEL):
        offered = await request.gateway.offered_tools.of_agents()
    else:
        offered = []
    for toolset in offered:
        for schema in toolset.schemas:
            tools.setdefault(schema.name, _shape(schema, toolset.server_of(schema.name)))
    return wire.ToolList(tools=list(tools.values()))


def _shape(schema: ToolSchema, server: str | None) -> wire.ToolShape:
    return wire.ToolShape(
        name=schema.name, description=schema.description, parameters=dict(schema.parameters), server=server
    )


@operation(
    "tools.invoke",
    Http("POST /tools/{name}", headers={"idempotency_key": Header("Idempotency-Key")}, max_body_bytes=LARGE_BYTES),
    scope=TokenScope.ADMIN,
    target=TargetKind.SESSION,
    serves_bound=True,
)
async def invoke_tool(request: OperationRequest, params: InvokeTool) -> dict[str, Any]:
    """Calls the tool as that session. Returns the tool's object unchanged, failures included."""
    target = await _acting_target(request, params.session_key)
    if target is None:
        raise Invalid("Call needs 'sessionKey', the session that it acts as.", code="session_missing")
    return await request.gateway.tool_calls.call(
        request.holder or request.principal,
        target,
        params.name,
        params.arguments,
        idempotency_key=params.idempotency_key,
    )


async def _acting_target(request: OperationRequest, named: str | None) -> NamedTarget | None:
    return await request.gateway.tool_calls.acting_target(request.holder, named, request.services.sessions.target)
