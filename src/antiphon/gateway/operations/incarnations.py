"""The operation that lists the earlier conversations of a session. Contract: sessions 6, gateway 4."""

from antiphon.domain.tokens import TokenScope
from antiphon.gateway.operations.operation import OperationRequest, TargetKind, operation
from antiphon.gateway.operations.sessions import Limit, NamedSession
from antiphon.wire import incarnations as wire

MAX_LIMIT = 200


class ListIncarnations(NamedSession, frozen=True, kw_only=True):
    limit: Limit = 50
    cursor: str | None = None


@operation(
    "sessions.incarnations", "GET /sessions/{key}/incarnations", scope=TokenScope.READ, target=TargetKind.SESSION
)
async def list_incarnations(request: OperationRequest, params: ListIncarnations) -> wire.IncarnationList:
    """Lists the earlier conversations of a session, which resets have ended, newest first."""
    services, principal, target = request.services, request.principal, request.target(params.key)
    about = ("GET /sessions/{key}/incarnations", str(principal), repr(target))
    page = await services.incarnations.ended(
        principal,
        target,
        limit=min(max(params.limit, 1), MAX_LIMIT),
        before=None if params.cursor is None else services.cursors.unseal(about, params.cursor)[0],
    )
    return wire.IncarnationList(
        session_key=page.session_key.value,
        count=len(page.conversations),
        incarnations=[wire.incarnation(each) for each in page.conversations],
        next_cursor=None if page.next is None else services.cursors.seal(about, page.next),
    )
