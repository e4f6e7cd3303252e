"""Admits a caller to an operation, over any transport. Contract: access 5."""

from starlette.requests import Request

from antiphon.gateway.asgi import Scope
from antiphon.gateway.authentication import check_scope, limits_of
from antiphon.gateway.context import Gateway
from antiphon.gateway.operations.operation import AnyOperation, OperationRequest, SocketWaits


def admit(
    operation: AnyOperation,
    gateway: Gateway,
    asgi: Scope,
    *,
    http: Request | None = None,
    waits: SocketWaits | None = None,
) -> OperationRequest:
    """The caller's request. Raises `Denied` unless the caller's credential has the operation's scope.

    Open operations answer every credential, as they answer callers without one.
    """
    limits = limits_of(asgi)
    if operation.scope is not None:
        check_scope(
            limits, operation.scope, serves_bound=operation.serves_bound, serves_nodes=operation.http.serves_nodes
        )
    return OperationRequest(
        gateway=gateway,
        who=asgi.get("antiphon.principal"),
        scopes=limits.scopes,
        holder=asgi.get("antiphon.holder"),
        asgi=asgi,
        http=http,
        waits=waits,
        rights_changed=gateway.services.hub.rights_changed,
    )
