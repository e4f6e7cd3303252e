"""The methods of the WebSocket: every operation by its name, and the further names. Contract: gateway 2."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Generic, TypeVar, cast

import msgspec
from msgspec import Meta, Raw, Struct
from starlette.responses import Response

from antiphon.domain.errors import AntiphonError, Invalid, NotFound
from antiphon.engine.sessions.sessions import SessionFilter
from antiphon.gateway.bodies import body_too_large, limit_of
from antiphon.gateway.operations.messages import PostParams, post_message
from antiphon.gateway.operations.operation import AnyOperation, HttpReply, OperationRequest, Params
from antiphon.gateway.operations.runs import WaitForRun, wait_for_end
from antiphon.gateway.operations.sessions import NamedSession, get_session
from antiphon.gateway.operations.table import TABLE
from antiphon.incoming import decode

STREAMING = ("follow", "stream")
"""Parameters that turn an answer over HTTP into a stream of events."""

P = TypeVar("P", bound=Params)


class UnknownMethod(Invalid):
    """There is no method with that name."""

    default_code = "unknown_method"


class OnlyHttp(Invalid):
    """The operation has no other form than that over HTTP."""

    default_code = "only_http"


class SocketMethod(Struct, Generic[P], frozen=True, kw_only=True):
    """A name under which an operation is called."""

    name: str
    operation: AnyOperation
    """Its scope, its size and its answer are the method's."""
    params: type[P]
    decoder: "msgspec.json.Decoder[P]"
    handle: Callable[[OperationRequest, P], Awaitable[object]]

    def read(self, params: Raw, max_body_bytes: int) -> P:
        """The parameters. Raises `NotJson`, `Misfit`, `TooLarge`, and `OnlyHttp` for streams."""
        most = limit_of(self.operation.http.max_body_bytes, max_body_bytes)
        data = bytes(params)
        if len(data) > most:
            raise body_too_large(most)
        read = decode(data, self.decoder)
        for name in STREAMING:
            if getattr(read, name, False):
                raise OnlyHttp(f"Parameter {name!r} is only for HTTP. Use sessions.messages.subscribe.")
        return read

    async def call(self, request: OperationRequest, params: P) -> object:
        """The payload of the answer."""
        answer = await self.handle(request, params)
        assert not isinstance(answer, Response), self.name
        return cast("HttpReply[object]", answer).answer if isinstance(answer, HttpReply) else answer


class ResolveSession(Params, frozen=True, kw_only=True):
    """One name of a session: its key, an id, or its label."""

    key: str | None = None
    session_id: str | None = None
    label: str | None = None


class WaitForAgent(Params, frozen=True, kw_only=True):
    """Like `runs.wait`."""

    run_id: str
    timeout_ms: Annotated[int, Meta(ge=0, le=600_000)] = 30_000


class StartAgent(PostParams, frozen=True, kw_only=True):
    """Like `sessions.post`; the session is `main` unless named."""

    key: str = "main"


async def _resolve(request: OperationRequest, params: ResolveSession) -> object:
    """The row of the session with that key, id or label. Raises `Invalid` for none, several, or a label of several."""
    named = [name for name in (params.key, params.session_id, params.label) if name is not None]
    if len(named) != 1:
        raise Invalid("Session is named by one of 'key', 'sessionId' and 'label'.", code="invalid_request")
    key = params.key or params.session_id
    if params.label is not None:
        where = SessionFilter(label=params.label, include_inactive=True)
        found = (await request.services.sessions.list(request.principal, where, limit=2)).sessions
        if not found:
            raise NotFound(f"Session not found: {params.label[:200]!r}. `sessions.list` shows those that you may see.")
        if len(found) > 1:
            raise Invalid(
                f"Label is not unique: {params.label[:200]!r}. Name the session by its key.", code="ambiguous_label"
            )
        key = found[0].key.value
    assert key is not None
    return await get_session.handle(request, NamedSession(key=key))


async def _wait(request: OperationRequest, params: WaitForAgent) -> object:
    return await wait_for_end.handle(request, WaitForRun(run_id=params.run_id, wait=params.timeout_ms / 1000))


def _method(name: str, operation: AnyOperation) -> SocketMethod[Any]:
    return _alias(name, operation, operation.params, operation.handle)


def _alias(
    name: str, operation: AnyOperation, params: type[P], handle: Callable[[OperationRequest, P], Awaitable[object]]
) -> SocketMethod[Any]:
    return SocketMethod(
        name=name, operation=operation, params=params, decoder=msgspec.json.Decoder(params), handle=handle
    )


def _methods() -> Mapping[str, SocketMethod[Any]]:
    listed = [_method(name, each) for name, each in TABLE.items() if not each.http.is_only]
    listed += [
        _alias("sessions.resolve", get_session, ResolveSession, _resolve),
        _method("chat.history", TABLE["sessions.history"]),
        _method("chat.send", TABLE["sessions.post"]),
        _method("chat.abort", TABLE["sessions.cancel"]),
        _alias("agent", TABLE["sessions.post"], StartAgent, post_message.handle),
        _alias("agent.wait", TABLE["runs.wait"], WaitForAgent, _wait),
        _method("health", TABLE["health.get"]),
    ]
    return MappingProxyType({method.name: method for method in listed})


METHODS = _methods()
"""The methods that are operations, by name. Subscriptions and `connect` come on top."""


def find_method(name: str) -> SocketMethod[Any]:
    """Raises `UnknownMethod`, `OnlyHttp`."""
    method = METHODS.get(name)
    if method is not None:
        return method
    error: AntiphonError
    if name in TABLE:
        http = TABLE[name].http
        error = OnlyHttp(f"Operation exists only over HTTP: {http.method} {http.path}")
    else:
        error = UnknownMethod(f"Method is not known: {name!r}. The answer to 'connect' lists the methods.")
    raise error
