"""The operation that finds sessions by name and messages by their words. Contract: gateway 4, search 1."""

from typing import Annotated

from msgspec import Meta

from antiphon.domain.tokens import TokenScope
from antiphon.gateway.operations.operation import OperationRequest, Params, operation
from antiphon.gateway.operations.sessions import Limit
from antiphon.wire import search as wire
from antiphon.wire.sessions import session_row

MAX_LIMIT = 100


class FindParams(Params, frozen=True, kw_only=True):
    q: Annotated[str, Meta(description="One or more words; a result contains them all.")]
    limit: Limit = 20
    """Of each of the two groups."""
    cursor: str | None = None
    """`nextCursor` of the previous answer: older messages, and no sessions again."""


@operation("search.find", "GET /search", scope=TokenScope.READ)
async def find(request: OperationRequest, params: FindParams) -> wire.FoundShape:
    """Finds sessions by name and messages by their words, newest first."""
    services, principal = request.services, request.principal
    about = ("GET /search", str(principal), params.q)
    before = None if params.cursor is None else services.cursors.unseal(about, params.cursor)[0]
    limit = min(max(params.limit, 1), MAX_LIMIT)
    page = await services.search.messages(principal, params.q, limit=limit, before=before)
    named = None if before is not None else await services.search.sessions(principal, params.q, limit=limit)
    default_model = request.gateway.default_model
    return wire.FoundShape(
        sessions=[
            session_row(each, default_model=default_model(each.agent_id), names_provider=request.gateway.names_provider)
            for each in (() if named is None else named.sessions)
        ],
        more_sessions=named is not None and named.has_more,
        messages=[wire.found_message(hit) for hit in page.hits],
        next_cursor=None if page.next is None else services.cursors.seal(about, page.next),
    )
