"""Routes of tools, for people and programs that act as a session. Contract: gateway 4, tools 1."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from antiphon.domain.errors import Invalid
from antiphon.domain.message import JsonObject, JsonValue
from antiphon.domain.targets import NamedTarget
from antiphon.gateway.context import Json, bound_session, gateway_of, principal_of
from antiphon.gateway.requests import TOOL, ToolBody

router = APIRouter(tags=["tools"])


@router.get("/tools")
async def list_tools(
    request: Request, session_key: Annotated[str | None, Query(alias="sessionKey")] = None
) -> dict[str, Any]:
    """The tools that there are, or that a session has, with the JSON Schema of their arguments."""
    gateway = gateway_of(request)
    read_target = gateway.services.sessions.target
    target = await gateway.tool_calls.acting_target(bound_session(request), session_key, read_target)
    if target is None:
        schemas = gateway.tool_calls.schemas
    else:
        schemas = await gateway.tool_calls.schemas_for(principal_of(request), target)
    tools = [{"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in schemas]
    return {"tools": tools}


@router.post("/tools/{name}", openapi_extra=TOOL.described())
async def call_tool(
    request: Request,
    name: str,
    body: Annotated[ToolBody, Depends(TOOL)],
    idempotency_key: Annotated[str | None, Header(alias="Idempotency-Key")] = None,
) -> Response:
    """Calls the tool as that session. The answer is the tool's object as it is, failures too."""
    gateway = gateway_of(request)
    arguments: JsonObject = dict[str, JsonValue](body.arguments)
    answer = await gateway.tool_calls.call(
        principal_of(request),
        await _session(request, body.session_key),
        name,
        arguments,
        idempotency_key=idempotency_key,
    )
    return Json(answer)


async def _session(request: Request, named: str | None) -> NamedTarget:
    gateway = gateway_of(request)
    read_target = gateway.services.sessions.target
    target = await gateway.tool_calls.acting_target(bound_session(request), named, read_target)
    if target is None:
        raise Invalid("Call needs 'sessionKey', the session that it acts as.", code="session_missing")
    return target
