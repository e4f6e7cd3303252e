"""Routes of tools, for people and programs that act as a session. Contract: gateway 4, tools 1."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from pydantic import Field

from antiphon.domain.message import JsonObject, JsonValue
from antiphon.gateway.context import Json, gateway_of, principal_of
from antiphon.gateway.requests import Body

router = APIRouter(tags=["tools"])


class ToolBody(Body):
    session_key: str
    """The session that the call acts as."""
    arguments: dict[str, Any] = Field(default_factory=dict[str, Any])


@router.get("/tools")
async def list_tools(request: Request) -> dict[str, Any]:
    """The tools that can be called, with the JSON Schema of their arguments."""
    tools = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in gateway_of(request).tool_calls.schemas
    ]
    return {"tools": tools}


@router.post("/tools/{name}")
async def call_tool(
    request: Request,
    name: str,
    body: ToolBody,
    idempotency_key: Annotated[str | None, Header(alias="Idempotency-Key")] = None,
) -> Response:
    """Calls the tool as that session. The answer is the tool's object as it is, failures too."""
    gateway = gateway_of(request)
    arguments: JsonObject = dict[str, JsonValue](body.arguments)
    answer = await gateway.tool_calls.call(
        principal_of(request),
        gateway.services.sessions.target(body.session_key),
        name,
        arguments,
        idempotency_key=idempotency_key,
    )
    return Json(answer)
