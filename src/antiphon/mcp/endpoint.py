"""MCP over HTTP, on the gateway. Each request is authenticated on its own, so nothing outlives its token."""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs

import anyio
from anyio import to_thread

from antiphon.agents.calls import ToolCalls
from antiphon.agents.model import ToolSchema
from antiphon.domain.errors import Invalid, Unavailable
from antiphon.domain.message import JsonObject
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.reach import Outsider, TokenHolder
from antiphon.incoming import check_values
from antiphon.mcp.server import build_server

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

SESSION_HEADER = b"antiphon-session"
START_SECONDS = 30.0


class Endpoint:
    """The ASGI application at `/mcp`. The guard has identified the caller; `run` must be running."""

    def __init__(
        self, calls: ToolCalls, read_target: Callable[[str], NamedTarget], version: str, max_body_bytes: int
    ) -> None:
        self._calls = calls
        self._read_target = read_target
        self._version = version
        self._max_body_bytes = max_body_bytes
        self._wanted = anyio.Event()
        self._ready = anyio.Event()
        self._manager: StreamableHTTPSessionManager | None = None

    async def run(self) -> None:
        """Serves until cancelled. Loads the protocol at the first request."""
        await self._wanted.wait()
        self._manager = await to_thread.run_sync(self._load)
        async with self._manager.run():
            self._ready.set()
            await anyio.sleep_forever()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises `Invalid` and `Denied` for a request that acts as no session."""
        scope["antiphon.target"] = await self._target_of(scope)
        self._wanted.set()
        with anyio.move_on_after(START_SECONDS):
            await self._ready.wait()
        if self._manager is None:
            raise Unavailable("MCP is not ready yet. Try again.")
        await self._manager.handle_request(scope, await _checked(receive), send)

    async def _target_of(self, scope: Scope) -> NamedTarget:
        """The session that the token is bound to, or that the owner names."""
        holder: TokenHolder | None = scope.get("antiphon.holder")
        target = await self._calls.acting_target(holder, _named_session(scope), self._read_target)
        if target is None:
            raise Invalid(
                "Request names no session to act as. Send the header Antiphon-Session, or use a token that is "
                "bound to one (`antiphon tokens create`).",
                code="session_missing",
            )
        return target

    def _load(self) -> "StreamableHTTPSessionManager":
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        return StreamableHTTPSessionManager(
            build_server(self._tools_of, self._version), stateless=True, max_request_body_size=self._max_body_bytes
        )

    def _tools_of(self, context: "ServerRequestContext[Any]") -> "_ActingTools":
        assert context.request is not None
        scope = context.request.scope
        actor = scope.get("antiphon.holder") or scope["antiphon.principal"]
        return _ActingTools(self._calls, actor, scope["antiphon.target"])


class _ActingTools:
    """The tools for the caller that acts as the session. Implements `SessionTools`."""

    def __init__(self, calls: ToolCalls, actor: Outsider, target: NamedTarget) -> None:
        self._calls = calls
        self._actor = actor
        self._target = target

    async def schemas(self) -> Sequence[ToolSchema]:
        return await self._calls.schemas_for(self._actor, self._target)

    async def call(self, name: str, arguments: JsonObject, *, idempotency_key: str | None) -> JsonObject:
        return await self._calls.call(self._actor, self._target, name, arguments, idempotency_key=idempotency_key)


async def _checked(receive: Receive) -> Receive:
    """Replays the body once it is complete. Raises `NotJson` if it has too many values."""
    body = bytearray()
    while True:
        part = await receive()
        if part["type"] != "http.request":
            break
        body += part.get("body", b"")
        if not part.get("more_body", False):
            break
    check_values(bytes(body))
    parts = [{"type": "http.request", "body": bytes(body), "more_body": False}]

    async def again() -> MutableMapping[str, Any]:
        return parts.pop() if parts else await receive()

    return again


def _named_session(scope: Scope) -> str | None:
    header = next((value.decode("latin-1") for name, value in scope["headers"] if name == SESSION_HEADER), None)
    query = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("session")
    return header or (query[0] if query else None)
