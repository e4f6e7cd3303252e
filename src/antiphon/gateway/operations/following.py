"""Shared by operations that wait, stream or page: resuming, views of one incarnation, the size limit of a page.

Contract: gateway 1.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Annotated, TypeAlias

from msgspec import Meta
from msgspec.structs import replace

from antiphon.domain.cursors import read_event_id
from antiphon.domain.delay import Delay, DelayOver
from antiphon.domain.errors import Denied, NotFound
from antiphon.domain.event import Event
from antiphon.domain.ids import RunId, SessionId, SessionRow
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.session import WEBCHAT, DeliveryContext, Session
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.names import PersonNames
from antiphon.engine.access.reach import Found
from antiphon.engine.sessions.inbox import Posted
from antiphon.engine.views.history import HistoryPage
from antiphon.feed.follow import Frame, Permit, View
from antiphon.gateway.operations.operation import Header, OperationRequest
from antiphon.gateway.sse import SSE_TYPE, FollowResponse, frame, reset_frame, run_view
from antiphon.policy.reach import Grant
from antiphon.wire.encoding import compact_json
from antiphon.wire.messages import HistoryShape, ending, message
from antiphon.wire.runs import PostedShape, posted

MAX_PAGE_BYTES = 6 * 1024 * 1024
MAX_WAIT_SECONDS = 600
STOPPED = "Gateway is stopping. The message is stored; GET /runs/{runId} shows the outcome once the gateway is back."

API = "api"
"""What rules see as the channel of a program that waits for an answer."""

Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS, description="How long to wait.")]
After: TypeAlias = Annotated[int, Meta(ge=0, lt=10**18, description="Start after this `seq`.")]

LAST_EVENT_ID = Header("Last-Event-ID", read_event_id)
"""Means the same as `after` and overrides it; browsers send it when they reconnect."""
ACCEPT = Header("Accept", lambda value: True if SSE_TYPE in value else None, is_described=False)


def is_in_log(session: Session, cursor: int) -> bool:
    return session.first_seq - 1 <= cursor <= session.last_seq


def resume(session: Session, cursor: int | None, *, otherwise: int) -> tuple[int, list[Frame]]:
    """The `seq` to continue after, and the first frames: a `reset` if the log does not hold the cursor."""
    if cursor is not None and is_in_log(session, cursor):
        return cursor, []
    return otherwise, [] if cursor is None else [reset_of(session, cursor)]


def reset_of(session: Session, cursor: int) -> Frame:
    """Tells the reader why the log does not hold the cursor."""
    return reset_frame("ahead" if cursor > session.last_seq else "pruned")


def start_of(found: Found) -> int:
    """The cursor before the first event: of an ended incarnation if one was named, else of the whole log."""
    session = found.as_named
    return max(session.first_seq, session.incarnation_seq if found.is_ended else 0) - 1


def view_of(view: View, session_id: SessionId, *, is_ended: bool) -> View:
    """The view of an ended incarnation: only its own events, which may still arrive late."""
    if not is_ended:
        return view

    def encode(event: Event) -> Frame:
        return view.encode(event) if event.session_id == session_id else b""

    def encode_delta(run: RunId, text: str | None) -> Frame:
        return b""

    def encode_delay(run: RunId, delay: Delay | DelayOver) -> Frame:
        return b""

    return replace(view, encode=encode, encode_delta=encode_delta, encode_delay=encode_delay)


def history_of(page: HistoryPage, names: PersonNames, seal: Callable[[int], str]) -> HistoryShape:
    """The page within 6 MiB: drops the oldest messages and sets the flags accordingly."""
    messages = [message(event, author=names.author_of(event), compartments=names.compartments) for event in page.events]
    dropped, size = _oldest_beyond([len(compact_json(each)) + 1 for each in messages])
    kept, has_more = messages[dropped:], page.has_more or dropped > 0
    return HistoryShape(
        session_key=page.session.key.value,
        session_id=page.session.id,
        messages=kept,
        endings=[ending(end) for end in page.endings if dropped == 0 or end.seq > kept[0].seq] or None,
        has_more=has_more,
        truncated=dropped > 0,
        dropped_messages=dropped > 0,
        content_truncated=False,
        content_redacted=False,
        bytes=size,
        next_cursor=seal(kept[0].seq) if has_more and kept else None,
    )


def _oldest_beyond(sizes: Sequence[int]) -> tuple[int, int]:
    """How many of the oldest to drop, and the size of the others as a list in bytes. The newest stays."""
    total, dropped = sum(sizes) + 1, 0
    while total > MAX_PAGE_BYTES and dropped < len(sizes) - 1:
        total -= sizes[dropped]
        dropped += 1
    return dropped, total


async def wait_for_run(
    request: OperationRequest, run_id: RunId, seconds: float, session: SessionRow | None = None
) -> Run | None:
    """The run that ended the work, as the caller may see it then; None if it has not ended in that time."""
    run = None
    with request.waiting():
        run = await request.services.waits.wait(run_id, timedelta(seconds=seconds), session)
    return None if run is None else await request.services.runs.shown(request.principal, run)


async def with_end(request: OperationRequest, stored: Posted, seconds: float) -> PostedShape:
    """The result of posting, once the run that answers the message has ended, or as `timeout`."""
    if stored.run_id is None:
        return posted(stored)
    run = await wait_for_run(request, stored.run_id, seconds, stored.session)
    if run is None:
        return replace(posted(stored), status=RunStatus.TIMEOUT)
    channel = API if request.browser is None else WEBCHAT
    told = await request.services.replies.told(run, DeliveryContext(channel=channel, to=str(request.principal)))
    return replace(
        posted(stored),
        status=run.status,
        reply=told.text,
        suppressed=told.suppressed,
        error=run.error,
        code=run.code,
        withheld=run.is_withheld or None,
    )


def permit_for(request: OperationRequest, target: NamedTarget, grant: Grant) -> Permit:
    """The caller's grant, and what decides anew what the caller may read of the session."""

    async def decide() -> Grant | None:
        try:
            return (await request.services.sessions.get(request.principal, target)).grant
        except (Denied, NotFound):
            return None

    watch = request.services.trail.watch(request.principal, grant.session)
    return Permit(grant, decide, request.rights_changed, watch=watch)


async def stream_run(request: OperationRequest, stored: Posted, run_id: RunId) -> FollowResponse:
    """Streams the result of posting, then the run's events until it ends."""
    is_over = False

    def end() -> None:
        nonlocal is_over
        is_over = True

    held = request.services.hub.hold(stored.session)  # the run does not wait until the stream begins
    target = request.target(stored.session_key)
    found = await request.services.sessions.get(request.principal, target)
    return FollowResponse(
        request.services.hub,
        replace(permit_for(request, target, found.grant), held=held),
        after=stored.seq,
        view=run_view(run_id, request.services.names, end),
        first=[frame("message_ack", posted(stored))],
        is_over=lambda: is_over,
        cut=frame("error", {"code": "stopped", "message": STOPPED, "runId": run_id}),
    )
