"""The HTTP application: routes, and one shape for every error. Contract: answers 5, gateway 4."""

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Literal

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Route

from antiphon.agents.calls import ToolCalls
from antiphon.domain.errors import AntiphonError, Limited, Unavailable, Unproven
from antiphon.engine.services import Services
from antiphon.engine.work.health import Health
from antiphon.gateway import deliveries, page, runs, sessions, signin, tokens, tools, trees, webhooks
from antiphon.gateway.authentication import MCP_PATH
from antiphon.gateway.bodies import schemas_of
from antiphon.gateway.context import Gateway, InboundWebhooks, RotateOwnerToken
from antiphon.gateway.guard import AsgiApp, GatewaySettings, Guard, Receive, Scope, Send, status_of
from antiphon.gateway.requests import DECODED, check_query
from antiphon.incoming import Misfit, NotJson, bounded, shown_place

logger = logging.getLogger(__name__)

OPEN_PATHS = ("/health", "/ready", "/auth/exchange", "/auth/prove", "/favicon.ico")
OPEN_PREFIXES = ("/static/", webhooks.PREFIX)
"""Below these the routes themselves ask who it is, where that matters."""
ROUTERS = (
    sessions.router,
    trees.router,
    runs.router,
    deliveries.router,
    tools.router,
    tokens.router,
    signin.router,
)
"""Their routes take the parameters that they name, and no others."""
_TYPES = {
    400: "invalid_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid_request",
    429: "rate_limited",
    503: "unavailable",
}


class Refusal(BaseModel):
    """What is wrong, and what to do."""

    model_config = ConfigDict(hide_input_in_errors=True)

    type: str
    message: str
    code: str
    """Stable; docs/ERRORS.md lists them."""


class ErrorAnswer(BaseModel):
    """Every answer that is an error."""

    model_config = ConfigDict(hide_input_in_errors=True)

    ok: Literal[False]
    error: Refusal


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ErrorAnswer, "description": HTTPStatus(status).phrase} for status in statuses}


REFUSALS = _refusals(400, 401, 403, 404, 405, 409, 413, 415, 422, 429, 500, 503)
"""What any route may answer, as the description says."""


def build_gateway(
    services: Services,
    tool_calls: ToolCalls,
    mcp: AsgiApp,
    settings: GatewaySettings,
    check_model: Callable[[str], Awaitable[None]],
    inbound: InboundWebhooks,
    rotate: RotateOwnerToken,
) -> AsgiApp:
    """The whole application, behind its guard."""
    api = FastAPI(
        title="Antiphon",
        summary="A durable session runtime and gateway for AI agents.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        separate_input_output_schemas=False,
    )
    api.state.gateway = Gateway(
        services=services,
        tool_calls=tool_calls,
        settings=settings,
        check_model=check_model,
        webhooks=inbound,
        rotate_owner_token=rotate,
    )
    for router in ROUTERS:
        api.include_router(router, dependencies=[Depends(check_query)], responses=REFUSALS)
    api.include_router(webhooks.router, responses=REFUSALS)
    api.router.routes.append(Route(MCP_PATH, _McpRoute(mcp), methods=["POST"]))
    page.mount(api)
    _add_probes(api, services.health)
    _describe_bodies(api)
    api.add_exception_handler(AntiphonError, _on_error)
    api.add_exception_handler(RequestValidationError, _on_invalid)
    api.add_exception_handler(HTTPException, _on_http_error)
    api.add_exception_handler(Misfit, _on_misfit)
    api.add_exception_handler(NotJson, _on_not_json)
    api.add_exception_handler(ClientDisconnect, _on_gone)
    api.add_exception_handler(Exception, _on_crash)
    return Guard(api, services, settings, open_paths=OPEN_PATHS, open_prefixes=OPEN_PREFIXES)


def _describe_bodies(api: FastAPI) -> None:
    """Adds the types of bodies that the framework does not read itself to the description."""
    describe = api.openapi

    def described() -> dict[str, Any]:
        schemas: dict[str, Any] = describe().setdefault("components", {}).setdefault("schemas", {})
        schemas.update(schemas_of(*(body.kind for body in DECODED)))
        return describe()

    api.openapi = described


class _McpRoute:
    """An instance, because a function would be taken for one that makes a response of a request."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def build_probes(health: Health) -> AsgiApp:
    """`/health` and `/ready` alone, for a process that answers nobody but its supervisor."""
    api = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    _add_probes(api, health)
    api.add_exception_handler(AntiphonError, _on_error)
    api.add_exception_handler(HTTPException, _on_http_error)
    return api


def _add_probes(api: FastAPI, health: Health) -> None:
    api.state.health = health
    api.add_api_route("/health", _health, tags=["health"], responses=_refusals(400, 401, 403, 405, 413, 415, 503))
    api.add_api_route("/ready", _ready, tags=["health"], responses=_refusals(400, 401, 403, 405, 413, 415, 503))


async def _health() -> dict[str, Any]:
    """The process answers."""
    return {"ok": True}


async def _ready(request: Request) -> dict[str, Any]:
    """Messages can be taken and stored; without a worker they wait until one comes."""
    health: Health = request.app.state.health
    ready = await health.check()
    answer: dict[str, Any] = {
        "ok": True,
        "workers": ready.workers,
        "configuredAlike": ready.is_configured_alike,
    }
    if not ready.workers:
        answer["note"] = "No worker lives: messages are stored, and answered when one comes."
    return answer


def error_response(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    kind = _TYPES.get(status, "internal_error")
    return JSONResponse(
        {"ok": False, "error": {"type": kind, "message": message, "code": code}}, status, headers=headers
    )


async def _on_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, AntiphonError)
    headers = None
    if isinstance(error, Limited):
        headers = {"Retry-After": str(error.retry_after_seconds)}
    elif isinstance(error, Unavailable):
        headers = {"Retry-After": "1"}
    elif isinstance(error, Unproven):
        headers = {"WWW-Authenticate": "Signature"}
    return error_response(status_of(error), error.code, error.message, headers)


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = error.errors()
    if any(problem["type"] == "json_invalid" for problem in problems):
        return error_response(400, "not_json", "Body is not JSON.")
    text = bounded([f"{_place(problem['loc'])}: {_said(problem)}" for problem in problems])
    return error_response(422, "invalid_request", text)


def _said(problem: Any) -> str:
    if problem["type"] == "union_tag_invalid":
        return "is of no known type"  # what the framework says would show the value
    return problem["msg"].removeprefix("Value error, ")


async def _on_misfit(request: Request, error: Exception) -> JSONResponse:
    return error_response(422, "invalid_request", str(error))


async def _on_not_json(request: Request, error: Exception) -> JSONResponse:
    return error_response(400, "not_json", f"Body is not JSON that can be read: {error}.")


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    status = error.status_code
    if status == 400:
        # The framework raises it where the body cannot be read as JSON, for other reasons than its grammar.
        return error_response(400, "not_json", f"Body is not JSON that can be read: {_unreadable(error.__cause__)}.")
    messages = {404: f"No such address: {request.url.path[:200]!r}", 405: "Method is not allowed here"}
    headers = {"Allow": _allowed_methods(request)} if status == 405 else dict(error.headers or {})
    phrase = HTTPStatus(status).name.lower()
    return error_response(status, phrase, messages.get(status, str(error.detail)), headers)


def _unreadable(cause: BaseException | None) -> str:
    match cause:
        case UnicodeDecodeError():
            return f"it is not UTF-8, byte {cause.start + 1} is {cause.object[cause.start]:#04x}"
        case RecursionError():
            return "it is nested too deeply"
        case ValueError():
            return "a number in it has too many digits"
        case _:
            return "it did not come whole"


def _allowed_methods(request: Request) -> str:
    """Those of every route with this address; the framework names only the first one's."""
    methods: set[str] = set()
    for route in (*request.app.routes, *(route for router in (*ROUTERS, webhooks.router) for route in router.routes)):
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return ", ".join(sorted(methods))


async def _on_gone(request: Request, error: Exception) -> Response:
    """The client closed before its body was whole, or was refused: nobody reads this, and nothing went wrong here."""
    return Response(status_code=400)


async def _on_crash(request: Request, error: Exception) -> JSONResponse:
    logger.error("Request failed", exc_info=error, extra={"action": "request_failed", "path": request.url.path})
    return error_response(500, "internal_error", "Antiphon failed inside; its log says more.")


def _place(location: tuple[str | int, ...]) -> str:
    return shown_place(location[1:]) or str(location[0])
