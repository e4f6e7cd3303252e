"""Approval requests, as deciders see them. Contract: approvals 3, gateway 4."""

import json
from collections.abc import Mapping, Sequence

from antiphon.domain.approval import Approval, ApprovalState, AskedCall, Verdict
from antiphon.domain.classification import Compartments
from antiphon.domain.message import JsonObject
from antiphon.domain.standing_approval import StandingApproval
from antiphon.wire.encoding import Shape, milliseconds, optional_milliseconds
from antiphon.wire.messages import ClassificationShape, classification


class AskedCallShape(Shape, frozen=True, kw_only=True):
    """One call, exactly as it will run."""

    call_id: str
    tool: str
    arguments: str
    """JSON text, as it will run: no name stands twice in an object, and no blanks stand outside strings."""
    sha256: str
    reason: str
    decision: Verdict | None = None
    message_seq: int | None = None
    """The `seq` of the step that called; missing for a call from outside a run."""


class ApprovalShape(Shape, frozen=True, kw_only=True):
    """A request to approve calls."""

    approval_id: str
    session_key: str
    session_id: str
    agent_id: str
    run_id: str | None = None
    """Missing for a call from outside a run."""
    principal: str
    """With whose rights the calls run."""
    principal_name: str | None = None
    """The present name of that person."""
    classification: ClassificationShape | None = None
    """What the session holds, of which the calls were made; missing if that is public and trusted. Untrusted: somebody
    else than an owner wrote some of it."""
    status: ApprovalState
    calls: Sequence[AskedCallShape]
    created_at: int
    expires_at: int
    decided_at: int | None = None
    decided_by: str | None = None
    decided_by_name: str | None = None
    note: str | None = None
    result: JsonObject | None = None
    """The answer of an approved call from outside a run, once it has one."""


class ApprovalList(Shape, frozen=True, kw_only=True):
    count: int
    approvals: Sequence[ApprovalShape]


class StandingApprovalShape(Shape, frozen=True, kw_only=True):
    """What an owner allows always: calls of a tool, by one agent, caused by one principal."""

    standing_id: str
    agent_id: str
    principal: str
    principal_name: str | None = None
    tool: str
    fields: Sequence[str] | None = None
    """The arguments that calls must have as in `arguments`; missing if they must have all of them and no other."""
    arguments: str
    """JSON text."""
    run_id: str | None = None
    """The only run whose calls are allowed: a command."""
    approval_id: str
    created_at: int
    created_by: str
    created_by_name: str | None = None


class StandingApprovalList(Shape, frozen=True, kw_only=True):
    count: int
    standing_approvals: Sequence[StandingApprovalShape]


def named_in(found: Approval | StandingApproval) -> list[str]:
    """The principals that the shape names."""
    other = found.decided_by if isinstance(found, Approval) else found.created_by
    return [str(found.principal), *([] if other is None else [str(other)])]


def standing_approval(standing: StandingApproval, names: Mapping[str, str]) -> StandingApprovalShape:
    """`names` are those of the principals in it."""
    return StandingApprovalShape(
        standing_id=standing.id,
        agent_id=standing.agent_id,
        principal=str(standing.principal),
        principal_name=names.get(str(standing.principal)),
        tool=standing.tool,
        fields=standing.fields,
        arguments=standing.arguments,
        run_id=standing.run,
        approval_id=standing.approval,
        created_at=milliseconds(standing.created_at),
        created_by=str(standing.created_by),
        created_by_name=names.get(str(standing.created_by)),
    )


def approval(approval: Approval, names: Mapping[str, str], compartments: Compartments) -> ApprovalShape:
    """`names` are those of the principals in it."""
    return ApprovalShape(
        approval_id=approval.id,
        session_key=approval.session_key,
        session_id=approval.session_id,
        agent_id=approval.agent_id,
        run_id=approval.run,
        principal=str(approval.principal),
        principal_name=names.get(str(approval.principal)),
        classification=classification(approval.made_of, compartments),
        status=approval.state,
        calls=[_call(call) for call in approval.calls],
        created_at=milliseconds(approval.asked_at),
        expires_at=milliseconds(approval.expires_at),
        decided_at=optional_milliseconds(approval.decided_at),
        decided_by=None if approval.decided_by is None else str(approval.decided_by),
        decided_by_name=names.get(str(approval.decided_by)),
        note=approval.note,
        result=None if approval.outcome is None else json.loads(approval.outcome),
    )


def _call(call: AskedCall) -> AskedCallShape:
    return AskedCallShape(
        call_id=call.id,
        tool=call.tool,
        arguments=call.arguments,
        sha256=call.sha256,
        reason=call.reason,
        decision=call.verdict,
        message_seq=call.message_seq or None,
    )
