"""Operations on approval requests, for those who decide them. Contract: approvals 3, 5, gateway 4."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, TypeAlias

from msgspec import Meta

from antiphon.domain.approval import Approval, ApprovalState, Verdict
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import ApprovalId, SessionRow, StandingApprovalId
from antiphon.domain.tokens import TokenScope
from antiphon.engine.runs.decisions import ApprovalFilter
from antiphon.gateway.operations.following import Seconds
from antiphon.gateway.operations.operation import Http, OperationRequest, Params, TargetKind, operation
from antiphon.gateway.operations.sessions import Limit
from antiphon.wire import approvals as wire

MAX_LIMIT = 200
MAX_TRUSTED = 200

CallId: TypeAlias = Annotated[str, Meta(max_length=20)]
Hash: TypeAlias = Annotated[str, Meta(max_length=64)]
FieldName: TypeAlias = Annotated[str, Meta(max_length=200)]


class ListApprovals(Params, frozen=True, kw_only=True):
    session: str | None = None
    status: ApprovalState | None = None
    limit: Limit = 50
    before: str | None = None


class NamedApproval(Params, frozen=True, kw_only=True):
    approval_id: str


class WaitForApproval(NamedApproval, frozen=True, kw_only=True):
    wait: Seconds


class CallDecision(Params, frozen=True, kw_only=True):
    """The decision about one call."""

    call_id: CallId
    decision: Verdict
    fields: list[FieldName] | None = None
    """For `always`: the arguments that later calls must have in common with this one; all of them by default."""


class ResolveApproval(NamedApproval, frozen=True, kw_only=True):
    decision: Verdict | None = None
    """For all calls of the request."""
    decisions: list[CallDecision] | None = None
    """For each call, instead of `decision`."""
    fields: list[FieldName] | None = None
    """For `always`: the arguments that later calls must have in common with these; all of them by default."""
    trust: Annotated[list[Hash], Meta(max_length=MAX_TRUSTED)] | None = None
    """Hashes of the request's `sources` that the session trusts from now on. Only owners trust."""
    accept: bool = False
    """For a request about a withheld result (`resultOf`): the session rises to it, instead of its release."""
    note: str | None = None
    """Words for the agent."""


class ListStandingApprovals(Params, frozen=True, kw_only=True):
    limit: Limit = 50
    before: str | None = None


class NamedStandingApproval(Params, frozen=True, kw_only=True):
    standing_id: str


class ListTrustedContent(Params, frozen=True, kw_only=True):
    session: str | None = None
    limit: Limit = 50


class NamedTrustedContent(Params, frozen=True, kw_only=True):
    session_key: str
    sha256: Hash


@operation("approvals.list", "GET /approvals", scope=TokenScope.APPROVALS)
async def list_approvals(request: OperationRequest, params: ListApprovals) -> wire.ApprovalList:
    """Lists requests to approve calls, newest first; `before` is the last `approvalId` of a page."""
    row = None if params.session is None else await _row_of(request, params.session)
    before = None if params.before is None else ApprovalId(params.before)
    where = ApprovalFilter(session=row, state=params.status, before=before)
    limit = min(max(params.limit, 1), MAX_LIMIT)
    found = await request.services.approvals.list(request.principal, where, limit=limit)
    names = await request.services.names.read(name for approval in found for name in wire.named_in(approval))
    await request.services.names.read_compartments(approval.made_of for approval in found)
    shown = [wire.approval(approval, names, request.services.names.compartments) for approval in found]
    return wire.ApprovalList(count=len(found), approvals=shown)


@operation("approvals.get", "GET /approvals/{approval_id}", scope=TokenScope.APPROVALS, target=TargetKind.APPROVAL)
async def get_approval(request: OperationRequest, params: NamedApproval) -> wire.ApprovalShape:
    """Returns the request."""
    return await _shown(
        request, await request.services.approvals.get(request.principal, ApprovalId(params.approval_id))
    )


@operation(
    "approvals.wait",
    Http("GET /approvals/{approval_id}", when="wait"),
    scope=TokenScope.APPROVALS,
    target=TargetKind.APPROVAL,
)
async def wait_for_decision(request: OperationRequest, params: WaitForApproval) -> wire.ApprovalShape:
    """With `wait`, returns the request once it is decided, or as it is when the wait is over.

    An approved call from outside a run has its `result` then, unless it still runs.
    """
    id, timeout = ApprovalId(params.approval_id), timedelta(seconds=params.wait)
    with request.waiting():
        return await _shown(request, await request.services.approvals.wait(request.principal, id, timeout))
    return await _shown(request, await request.services.approvals.get(request.principal, id))


@operation("approvals.resolve", "POST /approvals/{approval_id}", scope=TokenScope.APPROVALS, target=TargetKind.APPROVAL)
async def resolve_approval(request: OperationRequest, params: ResolveApproval) -> wire.ApprovalShape:
    """Decides the request: `once` lets a call run one time, `always` also later ones, `deny` none. The first counts.

    Give `decision` for all calls, or `decisions` with one for each. Only owners decide `always`: calls of the tool with
    the same arguments, or with the same values of `fields`, do not ask any more if the same principal causes them with
    the same agent; a command is allowed until its run ends. If a call is asked about because its run has read words of
    others, `always` must fix every argument that says where to or how much, and `trust` says which of that words no
    call of the session is asked about again.
    """
    found = await request.services.approvals.get(request.principal, ApprovalId(params.approval_id))
    verdicts = _verdicts(params)
    if params.decision is None:
        fields = {each.call_id: tuple(each.fields) for each in params.decisions or () if each.fields is not None}
    else:
        fields = {} if params.fields is None else {call.id: tuple(params.fields) for call in found.calls}
    resolved = await request.services.approvals.resolve(
        request.principal,
        found.id,
        verdicts,
        fields=fields,
        trust=params.trust or (),
        accepts=params.accept,
        note=params.note,
    )
    return await _shown(request, resolved)


@operation("standing-approvals.list", "GET /standing-approvals", scope=TokenScope.APPROVALS)
async def list_standing_approvals(
    request: OperationRequest, params: ListStandingApprovals
) -> wire.StandingApprovalList:
    """Lists what owners allow always, newest first; `before` is the last `standingId` of a page."""
    before = None if params.before is None else StandingApprovalId(params.before)
    limit = min(max(params.limit, 1), MAX_LIMIT)
    found = await request.services.standing_approvals.list(request.principal, before=before, limit=limit)
    names = await request.services.names.read(name for each in found for name in wire.named_in(each))
    return wire.StandingApprovalList(
        count=len(found), standing_approvals=[wire.standing_approval(each, names) for each in found]
    )


@operation(
    "standing-approvals.revoke",
    "DELETE /standing-approvals/{standing_id}",
    scope=TokenScope.APPROVALS,
    target=TargetKind.STANDING_APPROVAL,
)
async def revoke_standing_approval(
    request: OperationRequest, params: NamedStandingApproval
) -> wire.StandingApprovalShape:
    """Ends a standing approval: its calls ask again, also those that are about to begin."""
    id = StandingApprovalId(params.standing_id)
    revoked = await request.services.standing_approvals.revoke(request.principal, id)
    return wire.standing_approval(revoked, await request.services.names.read(wire.named_in(revoked)))


@operation("trusted-content.list", "GET /trusted-content", scope=TokenScope.APPROVALS)
async def list_trusted_content(request: OperationRequest, params: ListTrustedContent) -> wire.TrustedContentList:
    """Lists what owners trust of what sessions have read, newest first; only of one session if it is named."""
    row = None if params.session is None else await _row_of(request, params.session)
    limit = min(max(params.limit, 1), MAX_LIMIT)
    found = await request.services.trusted_contents.list(request.principal, row, limit=limit)
    names = await request.services.names.read(name for each in found for name in wire.named_in(each))
    return wire.TrustedContentList(
        count=len(found), trusted_content=[wire.trusted_content(each, names) for each in found]
    )


@operation(
    "trusted-content.revoke",
    Http("DELETE /trusted-content/{sha256}", query=("session_key",)),
    scope=TokenScope.APPROVALS,
    target=TargetKind.TRUSTED_CONTENT,
)
async def revoke_trusted_content(request: OperationRequest, params: NamedTrustedContent) -> wire.TrustedContentShape:
    """Ends the trust in content: the session's calls ask again because of it, also those that are about to begin."""
    row = await _row_of(request, params.session_key)
    revoked = await request.services.trusted_contents.revoke(request.principal, row, params.sha256)
    return wire.trusted_content(revoked, await request.services.names.read(wire.named_in(revoked)))


async def _row_of(request: OperationRequest, session: str) -> SessionRow:
    return (await request.services.sessions.get(request.principal, request.target(session))).session.row


async def _shown(request: OperationRequest, approval: Approval) -> wire.ApprovalShape:
    names = await request.services.names.read(wire.named_in(approval))
    await request.services.names.read_compartments([approval.made_of])
    return wire.approval(approval, names, request.services.names.compartments)


def _verdicts(params: ResolveApproval) -> Mapping[str, Verdict] | Verdict:
    if (params.decision is None) is (params.decisions is None):
        raise Invalid("Request needs either 'decision', for all calls, or 'decisions'.", code="invalid_request")
    if params.decision is not None:
        return params.decision
    verdicts: dict[str, Verdict] = {}
    for each in params.decisions or ():
        if each.call_id in verdicts:
            raise Invalid(f"Call is decided twice: {each.call_id!r}. Decide each once.", code="invalid_request")
        verdicts[each.call_id] = each.decision
    return verdicts
