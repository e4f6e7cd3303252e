"""Operations on the audit, for owners. Contract: flow 12."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from antiphon.domain.audit import AuditKind, KeptSeal
from antiphon.domain.errors import Invalid
from antiphon.domain.tokens import TokenScope
from antiphon.engine.audit.audits import AuditPlace, place_of
from antiphon.gateway.operations.operation import Http, OperationRequest, Params, operation
from antiphon.gateway.operations.sessions import MAX_LIMIT, Limit
from antiphon.wire import audit as wire

MOST_SEALS = 5_000
"""The newest of a file; the newest alone finds a home that was rolled back."""
MAX_BODY_BYTES = 1024 * 1024


class ListAudit(Params, frozen=True, kw_only=True):
    kind: AuditKind | None = None
    limit: Limit = 50
    cursor: Annotated[str, Meta(max_length=200)] | None = None
    """The `nextCursor` of the page before."""


class Seal(Params, frozen=True, kw_only=True):
    """A line of the file that the home seals to."""

    home: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    n: Annotated[int, Meta(ge=1, le=2**53)]
    hash: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class VerifyAudit(Params, frozen=True, kw_only=True):
    seals: Annotated[Sequence[Seal], Meta(max_length=MOST_SEALS)] = ()


@operation("audit.list", "GET /audit", scope=TokenScope.ADMIN)
async def list_audit(request: OperationRequest, params: ListAudit) -> wire.AuditRowList:
    """Lists what was refused, what people read above PUBLIC, and what owners released and trusted, newest first."""
    after = None if params.cursor is None else _place(params.cursor)
    limit = min(max(params.limit, 1), MAX_LIMIT)
    found = await request.services.audits.list(request.principal, params.kind, limit=limit + 1, after=after)
    rows = found[:limit]
    return wire.AuditRowList(
        count=len(rows),
        rows=[wire.row(each) for each in rows],
        next_cursor=_cursor(place_of(rows[-1])) if len(found) > limit else None,
    )


@operation("audit.verify", Http("POST /audit/verify", max_body_bytes=MAX_BODY_BYTES), scope=TokenScope.ADMIN)
async def verify_audit(request: OperationRequest, params: VerifyAudit) -> wire.CheckedShape:
    """Checks the chains of all logs and processes, and says what was changed, removed or cut off, and where.

    Reads every event. With seals that were kept outside the home it also finds a home that was rolled back.
    """
    kept = [KeptSeal(seal.home, seal.n, bytes.fromhex(seal.hash)) for seal in params.seals]
    return wire.checked(await request.services.audits.check(request.principal, kept))


def _cursor(place: AuditPlace) -> str:
    return f"{place.at_ms}.{place.n}.{place.process}"


def _place(cursor: str) -> AuditPlace:
    at, _, rest = cursor.partition(".")
    n, _, process = rest.partition(".")
    if not (at.isascii() and at.isdigit() and n.isascii() and n.isdigit() and len(at) < 16 and len(n) < 16):
        raise Invalid("Cursor is not one of this list. Start without a cursor.", code="invalid_cursor")
    return AuditPlace(int(at), process, int(n))
