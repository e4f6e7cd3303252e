"""Approval requests, as deciders see them. Contract: approvals 3, gateway 4."""

import json
from collections.abc import Mapping, Sequence

from msgspec import field

from antiphon.domain.approval import Approval, ApprovalState, AskedCall, Executor, Verdict
from antiphon.domain.classification import Compartments
from antiphon.domain.distrust import MAX_SHOWN, ReadSource
from antiphon.domain.message import JsonObject
from antiphon.domain.release import Release, StandingRelease
from antiphon.domain.source_words import actors_in, was_read
from antiphon.domain.standing_approval import StandingApproval
from antiphon.domain.trusted_content import TrustedContent
from antiphon.wire.encoding import Shape, milliseconds, optional_milliseconds
from antiphon.wire.messages import ClassificationShape, classification


class ReleaseShape(Shape, frozen=True, kw_only=True):
    """Words that may not go where the call sends them, unless an owner lets them go: exactly these, once."""

    whose: str
    """What they were made of, for people, such as `Private to you`."""
    to: str
    """Who would get them, for people."""
    text: str
    """The exact words."""
    sha256: str
    """Covers the words, their place, everybody who reads there, and both classifications."""
    may_stand: bool
    """Whether it may be allowed always, for any words."""


class AskedCallShape(Shape, frozen=True, kw_only=True):
    """One call, exactly as it will run."""

    call_id: str
    tool: str
    arguments: str
    """JSON text, as it will run: no name stands twice in an object, and no blanks stand outside strings."""
    files: str | None = None
    """The files that it sends, as they were when it was asked: name, bytes and hash of each, a line each."""
    sha256: str
    reason: str
    release: ReleaseShape | None = None
    """Only owners may answer a request with one; `always` only for one person's own data, not above INTERNAL."""
    decision: Verdict | None = None
    message_seq: int | None = None
    """The `seq` of the step that called; missing for a call from outside a run, and for one of a harness."""
    executor: Executor | None = None
    """`client` if a harness asks, which carries the call out itself; missing otherwise."""


class ReadSourceShape(Shape, frozen=True, kw_only=True):
    """What a run had read that it does not trust."""

    seq: int
    """Where it stands in the session's log; 0 for notes and settings."""
    from_: str = field(name="from")
    """Who said it: a principal, or `agent`."""
    from_name: str | None = None
    """The present name of that person."""
    tool: str | None = None
    """The tool whose result it is; `summary`, `memory` and `name` for those."""
    sha256: str
    """Names the content, to trust it; empty for what cannot be trusted."""
    first_words: str


class ApprovalShape(Shape, frozen=True, kw_only=True):
    """A request to approve calls."""

    approval_id: str
    session_key: str
    session_id: str
    agent_id: str
    run_id: str | None = None
    """Missing for a call from outside a run, and for a refused text."""
    delivery_id: str | None = None
    """The refused reply or announcement that it would let go; its run does not wait."""
    result_of: str | None = None
    """The `runId` of the sub-agent whose result its session may not read: it is released, or accepted with `accept`."""
    principal: str
    """With whose rights the calls run."""
    principal_name: str | None = None
    """The present name of that person."""
    classification: ClassificationShape | None = None
    """What the session holds, of which the calls were made; missing if that is public and trusted. Untrusted: somebody
    else than an owner wrote some of it."""
    status: ApprovalState
    calls: Sequence[AskedCallShape]
    sources: Sequence[ReadSourceShape] | None = None
    """What the run had read that it does not trust, at most 20; missing for a request from a trusted context."""
    source_count: int | None = None
    was_read: str | None = None
    """What that was, in a sentence for people."""
    needs_trust: bool | None = None
    """Whether words are released only together with `trust` of all `sources`."""
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


class StandingReleaseShape(Shape, frozen=True, kw_only=True):
    """A person's own data that always may go to a place, in any words, while everybody who reads there stays."""

    whose: str
    to: str


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
    release: StandingReleaseShape | None = None
    """What it lets go where it may not; then `arguments` says nothing."""
    approval_id: str
    created_at: int
    created_by: str
    created_by_name: str | None = None


class StandingApprovalList(Shape, frozen=True, kw_only=True):
    count: int
    standing_approvals: Sequence[StandingApprovalShape]


class TrustedContentShape(Shape, frozen=True, kw_only=True):
    """What an owner trusts of what a session has read."""

    session_key: str
    sha256: str
    """Names the content."""
    from_: str = field(name="from")
    """Who said it: a principal, or `agent`."""
    from_name: str | None = None
    """The present name of that person."""
    tool: str | None = None
    """The tool whose result it was; `summary`, `memory` and `name` for those."""
    first_words: str
    approval_id: str
    created_at: int
    created_by: str
    created_by_name: str | None = None


class TrustedContentList(Shape, frozen=True, kw_only=True):
    count: int
    trusted_content: Sequence[TrustedContentShape]


def named_in(found: Approval | StandingApproval | TrustedContent) -> list[str]:
    """The principals that the shape names."""
    match found:
        case Approval():
            others = [] if found.decided_by is None else [str(found.decided_by)]
            return [str(found.principal), *others, *actors_in(found.sources)]
        case StandingApproval():
            return [str(found.principal), str(found.created_by)]
        case TrustedContent():
            return [found.actor, str(found.trusted_by)]


def trusted_content(trusted: TrustedContent, names: Mapping[str, str]) -> TrustedContentShape:
    """`names` are those of the principals in it."""
    return TrustedContentShape(
        session_key=trusted.session_key,
        sha256=trusted.sha256,
        from_=trusted.actor,
        from_name=names.get(trusted.actor),
        tool=trusted.tool,
        first_words=trusted.first_words,
        approval_id=trusted.approval,
        created_at=milliseconds(trusted.trusted_at),
        created_by=str(trusted.trusted_by),
        created_by_name=names.get(str(trusted.trusted_by)),
    )


def _standing_release(release: StandingRelease | None) -> StandingReleaseShape | None:
    return None if release is None else StandingReleaseShape(whose=release.whose, to=release.to)


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
        release=_standing_release(standing.release),
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
        delivery_id=approval.delivery,
        result_of=approval.result,
        principal=str(approval.principal),
        principal_name=names.get(str(approval.principal)),
        classification=classification(approval.made_of, compartments),
        status=approval.state,
        calls=[_call(call) for call in approval.calls],
        sources=[_source(each, names) for each in approval.sources[:MAX_SHOWN]] or None,
        source_count=len(approval.sources) or None,
        was_read=was_read(approval.sources, names).text if approval.sources else None,
        needs_trust=approval.needs_trust or None,
        created_at=milliseconds(approval.asked_at),
        expires_at=milliseconds(approval.expires_at),
        decided_at=optional_milliseconds(approval.decided_at),
        decided_by=None if approval.decided_by is None else str(approval.decided_by),
        decided_by_name=names.get(str(approval.decided_by)),
        note=approval.note,
        result=None if approval.outcome is None else json.loads(approval.outcome),
    )


def _source(source: ReadSource, names: Mapping[str, str]) -> ReadSourceShape:
    return ReadSourceShape(
        seq=source.seq,
        from_=source.actor,
        from_name=names.get(source.actor),
        tool=source.tool,
        sha256=source.sha256,
        first_words=source.first_words,
    )


def _release(release: Release) -> ReleaseShape:
    return ReleaseShape(
        whose=release.whose,
        to=release.to,
        text=release.text,
        sha256=release.sha256,
        may_stand=release.standing is not None,
    )


def _call(call: AskedCall) -> AskedCallShape:
    return AskedCallShape(
        call_id=call.id,
        tool=call.tool,
        arguments=call.arguments,
        files=call.files or None,
        sha256=call.sha256,
        reason=call.reason,
        release=None if call.release is None else _release(call.release),
        decision=call.verdict,
        message_seq=call.message_seq or None,
        executor=None if call.executor is Executor.RUNTIME else call.executor,
    )
