"""The HTTP application, made from the table of operations. Contract: answers 5, access 5, gateway 4."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any, cast

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from antiphon.domain.errors import Invalid
from antiphon.gateway.addresses import Addresses, RouteEndpoint
from antiphon.gateway.asgi import AsgiApp, Receive, Scope, Send
from antiphon.gateway.authentication import Authentication, check_scope, limits_of
from antiphon.gateway.binding import Binding
from antiphon.gateway.bodies import LARGE_BYTES
from antiphon.gateway.context import Gateway
from antiphon.gateway.guard import GatewaySettings, Guard
from antiphon.gateway.openapi import describe
from antiphon.gateway.operations import channels
from antiphon.gateway.operations.admission import admit
from antiphon.gateway.operations.health import check_ready, get_health
from antiphon.gateway.operations.operation import AnyOperation, HttpReply
from antiphon.gateway.operations.table import TABLE
from antiphon.gateway.page.assets import Assets
from antiphon.gateway.page.table import ROUTES as PAGE
from antiphon.gateway.responses import json_response, response_to
from antiphon.gateway.socket.connection import SocketGateway
from antiphon.gateway.socket.schemas import describe_socket
from antiphon.wire.encoding import compact_json

MCP_PATH = "/mcp"
SOCKET_PATH = "/ws"


def build_gateway(gateway: Gateway, mcp: AsgiApp, settings: GatewaySettings) -> Guard:
    """The whole application, behind its guard."""
    operations = [*TABLE.values(), *channels.foreign(gateway.addresses)]
    addresses = _addresses_of((*operations, *PAGE), gateway)
    tools = _Scoped(mcp, TABLE["tools.invoke"])
    addresses.add("POST", MCP_PATH, RouteEndpoint(answer=tools, max_body_bytes=LARGE_BYTES, serves_bound=True))
    for path, make in (("/openapi.json", lambda: describe(operations)), ("/asyncapi.json", describe_socket)):
        addresses.add("GET", path, RouteEndpoint(answer=_Scoped(_Description(make), TABLE["tools.list"])))
    addresses.add("GET", SOCKET_PATH, RouteEndpoint(answer=_NotASocket(), is_open=True))
    addresses.add("GET", "/static/*", RouteEndpoint(answer=Assets(), is_open=True))
    authentication = Authentication(gateway.services, owner_token=settings.owner_token, own_token=settings.own_token)
    socket = SocketGateway(gateway, authentication, max_body_bytes=settings.max_body_bytes)
    return Guard(Application(addresses), authentication, settings, addresses, sockets={SOCKET_PATH: socket})


def build_probes(gateway: Gateway) -> AsgiApp:
    """Only `/health` and `/ready`, for a process that serves nobody but its supervisor."""
    return Application(_addresses_of((get_health, check_ready), gateway))


def _addresses_of(operations: Iterable[AnyOperation], gateway: Gateway) -> Addresses:
    places: dict[tuple[str, str], list[AnyOperation]] = {}
    for operation in operations:
        places.setdefault((operation.http.method, operation.http.path), []).append(operation)
    addresses = Addresses()
    for (method, path), there in places.items():
        endpoint = RouteEndpoint(
            answer=_RoutePlace(there, gateway),
            max_body_bytes=max(operation.http.max_body_bytes for operation in there),
            is_open=any(operation.scope is None for operation in there),
            serves_bound=any(operation.serves_bound for operation in there),
            serves_nodes=any(operation.http.serves_nodes for operation in there),
            serves_this_machine=all(operation.http.serves_this_machine for operation in there),
        )
        addresses.add(method, path, endpoint)
    return addresses


class Application:
    """Answers requests that passed the guard, by address and method."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        def begin(message: MutableMapping[str, Any]) -> Awaitable[None]:
            nonlocal has_begun
            has_begun = True
            return send(message)

        try:
            await self._endpoint(scope).answer(scope, receive, begin)
        except Exception as error:  # every failure gets the same shape
            if has_begun:
                raise
            await response_to(error, scope)(scope, receive, send)

    def _endpoint(self, scope: Scope) -> RouteEndpoint:
        """Raises `HTTPException` if there is none."""
        found = scope["antiphon.found"] if "antiphon.found" in scope else self._addresses.find(scope["path"])
        if found is None:
            raise HTTPException(404)
        endpoint = found.address.endpoint(scope["method"])
        if endpoint is None:
            raise HTTPException(405, headers={"Allow": found.address.allowed})
        scope["path_params"] = found.parameters
        return endpoint


class _RoutePlace:
    """The operations at one method and address."""

    def __init__(self, operations: Sequence[AnyOperation], gateway: Gateway) -> None:
        self._gateway = gateway
        names = [operation.http.when for operation in operations if operation.http.when is not None]
        bound = [(operation, Binding(operation.params, operation.http, beside=names)) for operation in operations]
        self._usual = next(each for each in bound if each[0].http.when is None)
        self._others = [each for each in bound if each[0].http.when is not None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        on_http = Request(scope, receive)
        operation, binding = self._choose(on_http) if self._others else self._usual
        request = admit(operation, self._gateway, scope, http=on_http)
        params = await binding.read(on_http)
        answer = await operation.handle(request, params)
        if isinstance(answer, Response):
            await answer(scope, receive, send)
        elif isinstance(answer, HttpReply):
            reply = cast("HttpReply[object]", answer)
            await _send(send, reply.answer, reply.status or operation.http.status, reply.headers.items())
        else:
            await _send(send, answer, operation.http.status, ())

    def _choose(self, request: Request) -> tuple[AnyOperation, Binding[Any]]:
        """Chooses the operation by the names in the query."""
        if request.scope["query_string"]:
            query = request.query_params
            for operation, binding in self._others:
                name = operation.http.when
                if name is not None and name in query and (name in binding.own or query[name].lower() in ("1", "true")):
                    return operation, binding
        return self._usual


async def _send(send: Send, answer: object, status: int, headers: Iterable[tuple[str, str]]) -> None:
    """Sends the answer as JSON; None is an empty body."""
    sent = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    body = b""
    if answer is not None:
        body = compact_json(answer)
        sent += ((b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body})


class _Scoped:
    """An application that needs the same scope as an operation."""

    def __init__(self, application: AsgiApp, like: AnyOperation) -> None:
        self._application = application
        self._like = like

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        check_scope(limits_of(scope), self._like.scope, serves_bound=self._like.serves_bound)
        await self._application(scope, receive, send)


class _NotASocket:
    """Answers a request that does not ask for a WebSocket at the address of WebSockets."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise Invalid(
            "Address serves only WebSockets. Connect with a WebSocket client over HTTP/1.1.", code="not_a_socket"
        )


class _Description:
    """A description of the interface, made at the first request for it."""

    def __init__(self, make: Callable[[], dict[str, Any]]) -> None:
        self._make = make
        self._response: Response | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._response = self._response or json_response(self._make())
        await self._response(scope, receive, send)
