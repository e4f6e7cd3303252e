"""Rows of sessions. Contract: list 2, 3, gateway 4."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from antiphon.domain.keys import SessionKind
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import RunStatus
from antiphon.domain.session import (
    NOWHERE,
    DeliveryContext,
    SendOverride,
    SessionStatus,
    SessionSummary,
    SessionType,
    Source,
)
from antiphon.domain.session_ids import transcript_path
from antiphon.engine.access.reach import Found
from antiphon.engine.views.trees import LastRun
from antiphon.wire.encoding import Shape, dollars, milliseconds, optional_milliseconds, plain_json


class DeliveryContextShape(Shape, frozen=True, kw_only=True):
    """The place of a session's replies."""

    channel: str | None = None
    to: str | None = None
    account_id: str | None = None
    thread_id: str | None = None


class SourceShape(Shape, frozen=True, kw_only=True):
    """The origin of a session."""

    kind: str
    platform: str | None = None
    type: SessionType
    interactive: bool
    trigger_id: str | None = None


class LastRunShape(Shape, frozen=True, kw_only=True):
    """How a session's newest ended run ended."""

    run_id: str
    status: RunStatus
    code: str | None = None
    error: str | None = None
    ended_at: int | None = None


class SessionShape(Shape, frozen=True, kw_only=True):
    """A row as in `sessions_list`, with more fields for people."""

    key: str
    kind: SessionKind
    channel: str
    provider: str | None = None
    """The channel by its name in S0; only with `compat = "s0"`."""
    agent_id: str
    display_name: str | None = None
    label: str | None = None
    description: str | None = None
    preview: str | None = None
    source: SourceShape
    updated_at: int
    created_at: int
    started_at: int
    """When the present conversation began."""
    interacted_at: int
    """When somebody last posted, reopened it with changes, or reset it."""
    session_id: str
    status: SessionStatus
    model: str
    context_tokens: int | None = None
    """Tokens of the newest prompt and answer. An ended incarnation has none, and no counts, preview or description."""
    total_tokens: int
    cost_usd: float | None = None
    message_count: int | None = None
    turn_count: int | None = None
    last_seq: int
    thinking_level: str | None = None
    verbose_level: str | None = None
    system_sent: bool
    aborted_last_run: bool
    send_policy: SendOverride | None = None
    queue_mode: QueueMode | None = None
    """How messages are handled while the session is busy; if absent, as its channel and the configuration say."""
    last_channel: str | None = None
    last_to: str | None = None
    delivery_context: DeliveryContextShape | None = None
    transcript_path: str
    spawned_by: str | None = None
    metadata: dict[str, Any] | None = None
    participants: Sequence[str] | None = None
    """The principals that take part, without owners."""
    pending_approvals: int | None = None
    """How many of its requests for approval are open."""
    last_run: LastRunShape | None = None
    """Only in lists."""


class SessionList(Shape, frozen=True, kw_only=True):
    """A page of rows."""

    count: int
    sessions: Sequence[SessionShape]
    next_cursor: str | None = None


class DeletedSession(Shape, frozen=True, kw_only=True):
    """The answer to deleting a session."""

    ok: bool
    deleted: bool


class CancelledWork(Shape, frozen=True, kw_only=True):
    """The work that was under way in a session and its descendants, and is being cancelled."""

    ok: bool
    cancelled: bool
    below: int
    """The number of runs of descendants."""
    run_id: str | None = None
    """The run of the session itself."""


def found_row(found: Found, *, default_model: str, names_provider: bool) -> SessionShape:
    """The row of the incarnation that was named. Contract: keys 6."""
    return session_row(
        found.as_named, default_model=default_model, names_provider=names_provider, is_ended=found.is_ended
    )


def last_run(run: LastRun) -> LastRunShape:
    return LastRunShape(
        run_id=run.run,
        status=run.status,
        code=run.code,
        error=run.error,
        ended_at=optional_milliseconds(run.ended_at),
    )


def session_row(
    session: SessionSummary,
    *,
    default_model: str,
    names_provider: bool,
    is_ended: bool = False,
    last: LastRun | None = None,
) -> SessionShape:
    delivery = session.delivery
    return SessionShape(
        key=session.key.value,
        kind=session.key.kind,
        channel=channel(session),
        provider=channel(session) if names_provider else None,
        agent_id=session.agent_id,
        display_name=session.display_name,
        label=session.label,
        description=None if is_ended else session.description,
        preview=None if is_ended else session.preview,
        source=_source(session.source),
        updated_at=_milliseconds(session.updated_at),
        created_at=_milliseconds(session.created_at),
        started_at=_milliseconds(session.started_at),
        interacted_at=_milliseconds(session.interacted_at),
        session_id=session.id,
        status=session.status,
        model=session.model or default_model,
        context_tokens=None if is_ended else session.context_tokens,
        total_tokens=session.usage.total_tokens,
        cost_usd=dollars(session.usage.cost_microusd),
        message_count=None if is_ended else session.message_count,
        turn_count=None if is_ended else session.turn_count,
        last_seq=session.last_seq,
        thinking_level=session.thinking_level,
        verbose_level=session.verbose_level,
        system_sent=session.usage.steps > 0,
        aborted_last_run=session.aborted_last_run,
        send_policy=session.send_policy,
        queue_mode=session.queue_mode,
        last_channel=delivery.channel,
        last_to=delivery.to,
        delivery_context=_place(delivery),
        transcript_path=transcript_path(session.id),
        spawned_by=session.parent_key,
        metadata=session.metadata or None,
        participants=session.participants or None,
        pending_approvals=session.pending_approvals or None,
        last_run=None if last is None else last_run(last),
    )


def listed_row(session: SessionSummary, *, default_model: str, names_provider: bool) -> dict[str, Any]:
    """A row for agents: only the fields of `sessions_list`. Contract: list 2."""
    row = plain_json(session_row(session, default_model=default_model, names_provider=names_provider))
    for name in _FOR_PEOPLE:
        row.pop(name, None)
    return row


_milliseconds = lru_cache(maxsize=8192)(milliseconds)
"""Lists show the same moments again and again."""
_FOR_PEOPLE = (
    "agentId",
    "description",
    "preview",
    "source",
    "createdAt",
    "startedAt",
    "interactedAt",
    "costUsd",
    "messageCount",
    "turnCount",
    "lastSeq",
    "queueMode",
    "metadata",
    "participants",
    "pendingApprovals",
    "lastRun",
)


@lru_cache(maxsize=1024)
def _source(source: Source) -> SourceShape:
    return SourceShape(
        kind=source.kind,
        platform=source.platform,
        type=source.type,
        interactive=source.interactive,
        trigger_id=source.trigger_id,
    )


def _place(delivery: DeliveryContext) -> DeliveryContextShape | None:
    if delivery == NOWHERE:
        return None
    return DeliveryContextShape(
        channel=delivery.channel, to=delivery.to, account_id=delivery.account_id, thread_id=delivery.thread_id
    )


def channel(session: SessionSummary) -> str:
    """Contract: list 3."""
    match session.key.kind:
        case SessionKind.CRON | SessionKind.HOOK | SessionKind.NODE:
            return "internal"
        case SessionKind.GROUP:
            return session.key.channel or session.delivery.channel or "unknown"
        case _:
            return session.delivery.channel or session.key.channel or "unknown"
