"""Runs, and the results of posting. Contract: sessions 4, runs 3, gateway 4."""

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from antiphon.domain.delay import Delay, DelayOver
from antiphon.domain.ids import RunId
from antiphon.domain.message import Cut, Usage
from antiphon.domain.run import Purpose, Run, RunStatus
from antiphon.engine.sessions.inbox import Posted
from antiphon.wire.encoding import Shape, dollars, milliseconds, optional_milliseconds


class UsageShape(Shape, frozen=True, kw_only=True):
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None = None
    steps: int
    estimated: bool | None = None
    """Whether tokens of it are estimated, because the provider counted none."""


class DelayShape(Shape, frozen=True, kw_only=True):
    """Why a run waits for its model's provider."""

    code: str
    """The code of the error after which the provider is asked again, or `model_silent`."""
    text: str
    since: int
    until: int | None = None
    """When the provider is asked again."""
    attempt: int
    attempts: int


class DelayEvent(Shape, frozen=True, kw_only=True):
    """The event `delay` of a stream."""

    run_id: str
    delay: DelayShape | None = None
    """Missing once the run goes on."""


class RunShape(Shape, frozen=True, kw_only=True):
    """A run as stored in the ledger."""

    run_id: str
    session_key: str
    purpose: Literal["checkpoint"] | None = None
    """`checkpoint` for what a checkpoint used; missing for turns."""
    status: RunStatus
    """`timeout` without `endedAt` means that a wait ended, not the run."""
    created_at: int
    started_at: int | None = None
    ended_at: int | None = None
    reply: str | None = None
    error: str | None = None
    code: str | None = None
    cut: Cut | None = None
    """What cut `reply` short; missing if it is whole."""
    continues: str | None = None
    continued_by: str | None = None
    is_parked: bool | None = None
    approval_id: str | None = None
    """The request that it waits for, while it is `awaiting_approval`."""
    delay: DelayShape | None = None
    model: str | None = None
    """The model of its newest step."""
    usage: UsageShape | None = None
    withheld: bool | None = None
    """Whether you see no more than that it is at work or has ended: the rest is above your clearance."""


class RunList(Shape, frozen=True, kw_only=True):
    count: int
    runs: Sequence[RunShape]


class PostedShape(Shape, frozen=True, kw_only=True):
    """The result of posting a message. With a wait, also how the run that answers it ended."""

    session_key: str
    message_id: str
    seq: int
    run_id: str | None = None
    triggered: bool
    status: RunStatus | None = None
    reply: str | None = None
    error: str | None = None
    code: str | None = None
    withheld: bool | None = None
    """Whether reply and error are above your clearance."""
    suppressed: str | None = None
    """Why the reply is held back."""
    command: bool | None = None
    """Whether a webhook's message was a command, which is not stored as a message; `seq` is then the log's newest."""


def delay_shape(delay: Delay) -> DelayShape:
    return DelayShape(
        code=delay.code,
        text=delay.text,
        since=milliseconds(delay.since),
        until=optional_milliseconds(delay.until),
        attempt=delay.attempt,
        attempts=delay.attempts,
    )


def delay_event(run_id: RunId, delay: Delay | DelayOver) -> DelayEvent:
    return DelayEvent(run_id=run_id, delay=delay_shape(delay) if isinstance(delay, Delay) else None)


def usage_shape(usage: Usage) -> UsageShape:
    return UsageShape(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        cost_usd=dollars(usage.cost_microusd),
        steps=usage.steps,
        estimated=usage.estimated_tokens > 0 or None,
    )


def run(run: Run) -> RunShape:
    return RunShape(
        run_id=run.id,
        session_key=run.session_key,
        purpose="checkpoint" if run.purpose is Purpose.CHECKPOINT else None,
        status=run.status,
        created_at=milliseconds(run.created_at),
        started_at=optional_milliseconds(run.started_at),
        ended_at=optional_milliseconds(run.ended_at),
        reply=run.reply,
        error=run.error,
        code=run.code,
        cut=run.cut,
        continues=run.continues,
        continued_by=run.continued_by,
        is_parked=run.is_parked or None,
        approval_id=run.approval if run.is_awaiting_approval else None,
        delay=None if run.delay is None else delay_shape(run.delay),
        model=run.model,
        usage=usage_shape(run.usage) if run.usage.steps else None,
        withheld=run.is_withheld or None,
    )


def posted(posted: Posted) -> PostedShape:
    return PostedShape(
        session_key=posted.session_key,
        message_id=posted.message_id,
        seq=posted.seq,
        run_id=posted.run_id,
        triggered=posted.triggered,
    )


def unfinished_run(stored: Run) -> RunShape:
    """A run whose work was not over when a wait for it ended: `timeout` without `endedAt`."""
    return replace(run(stored), status=RunStatus.TIMEOUT, ended_at=None)
