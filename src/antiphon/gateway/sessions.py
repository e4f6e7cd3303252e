"""Routes of sessions. Contract: gateway 1, 4."""

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from antiphon import wire
from antiphon.domain.cursors import read_event_id
from antiphon.domain.errors import Invalid
from antiphon.domain.event import Event
from antiphon.domain.ids import SessionId, SessionRow
from antiphon.domain.keys import SessionKind
from antiphon.domain.message import Role
from antiphon.domain.session import Session
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.reach import Found
from antiphon.engine.sessions.inbox import Posted
from antiphon.engine.sessions.sessions import ListCursor, SessionFilter, session_columns
from antiphon.engine.views.history import HistoryPage
from antiphon.gateway.context import Json, gateway_of, principal_of
from antiphon.gateway.requests import MAX_SEARCH, MESSAGE, ForkBody, MessageBody, OpenBody, PatchBody
from antiphon.gateway.sse import EVENT_VIEW, FollowResponse, frame, message_view, run_view

MAX_PAGE_BYTES = 6 * 1024 * 1024
MAX_WAIT_SECONDS = 600.0
SSE_TYPE = "text/event-stream"
STOPPED = "Gateway stops before the run ends. The message is stored; GET /runs/{runId} has the end once it is back."

router = APIRouter(tags=["sessions"])

Limit = Annotated[int, Query(description="At most so many; clamped to what is allowed.")]


@router.get("/sessions")
async def list_sessions(
    request: Request,
    limit: Limit = 50,
    kinds: Annotated[list[SessionKind] | None, Query()] = None,
    agent_id: Annotated[str | None, Query(alias="agentId")] = None,
    label: str | None = None,
    search: Annotated[str | None, Query(max_length=MAX_SEARCH)] = None,
    active_minutes: Annotated[int | None, Query(alias="activeMinutes", ge=1, le=10**9)] = None,
    include_inactive: Annotated[bool, Query(alias="includeInactive")] = False,
    cursor: str | None = None,
) -> Response:
    """Sessions, newest first."""
    gateway = gateway_of(request)
    services = gateway.services
    since = None if active_minutes is None else services.clock.now() - timedelta(minutes=active_minutes)
    where = SessionFilter(
        agent_id=services.rules.agent_id(agent_id),
        kinds=None if kinds is None else frozenset(kinds),
        label=label,
        search=search,
        updated_since=since,
        include_inactive=include_inactive,
    )
    asked = (agent_id, sorted(kinds or ()), label, search, active_minutes, include_inactive)
    about = ("GET /sessions", str(principal_of(request)), repr(asked))
    after = None
    if cursor is not None:
        updated_at_ms, row = services.cursors.unseal(about, cursor)
        after = ListCursor(updated_at_ms, SessionRow(row))
    page = await services.sessions.list(principal_of(request), where, limit=min(max(limit, 1), 200), after=after)
    shown: dict[str, Any] = {
        "count": len(page.sessions),
        "sessions": [gateway.session_row(session) for session in page.sessions],
    }
    if page.next is not None:
        shown["nextCursor"] = services.cursors.seal(about, page.next.updated_at_ms, page.next.row)
    return Json(shown)


@router.post("/sessions", status_code=201, responses={200: {"description": "It existed."}})
async def open_session(request: Request, body: OpenBody, response: Response) -> dict[str, Any]:
    """Creates the session (201) or reopens it (200)."""
    gateway = gateway_of(request)
    services = gateway.services
    named = body.key if body.key is not None else body.session_id
    if named is None or (body.key is not None and body.session_id is not None):
        raise Invalid("Session needs either 'key' or 'sessionId'.", code="invalid_request")
    agent_id = services.rules.agent_id(body.agent_id)
    target = services.sessions.target(named, agent_id=agent_id)
    if body.session_id is not None:
        target = NamedTarget(None, SessionId(named)) if target.session_id is not None else target
    opened = await services.sessions.open(
        principal_of(request),
        target,
        agent_id=agent_id,
        source=body.source.source(),
        metadata=body.metadata,
        label=body.label,
        taint=body.taint.classification() if body.taint else None,
        clearance=body.clearance.classification() if body.clearance else None,
    )
    response.status_code = 201 if opened.is_new else 200
    return gateway.session_row(opened.session)


@router.get("/sessions/{key}")
async def get_session(request: Request, key: str) -> dict[str, Any]:
    return gateway_of(request).session_row((await _find(request, key)).session)


@router.patch("/sessions/{key}")
async def patch_session(request: Request, key: str, body: PatchBody) -> dict[str, Any]:
    """Changes what the body names; null unsets."""
    gateway = gateway_of(request)
    named = {name: getattr(body, name) for name in body.model_fields_set}
    if named.get("model") is not None:
        await gateway.check_model(named["model"])
    if "clearance" in named:
        named["clearance"] = body.clearance.classification() if body.clearance else None
    columns = session_columns(named)
    sessions = gateway.services.sessions
    if not columns:
        return gateway.session_row((await _find(request, key)).session)
    return gateway.session_row(await sessions.patch(principal_of(request), sessions.target(key), columns))


@router.delete("/sessions/{key}")
async def delete_session(request: Request, key: str) -> dict[str, Any]:
    sessions = gateway_of(request).services.sessions
    await sessions.delete(principal_of(request), sessions.target(key))
    return {"ok": True, "deleted": True}


@router.post("/sessions/{key}/reset")
async def reset_session(request: Request, key: str) -> dict[str, Any]:
    """Begins anew under the same key."""
    gateway = gateway_of(request)
    target = gateway.services.sessions.target(key)
    return gateway.session_row(await gateway.services.resets.reset(principal_of(request), target))


@router.post("/sessions/{key}/cancel")
async def cancel_session(request: Request, key: str) -> dict[str, Any]:
    """Cancels what the session and those that it spawned are at work on."""
    services = gateway_of(request).services
    cancelled = await services.runs.cancel_session(principal_of(request), services.sessions.target(key))
    is_any = cancelled.run_id is not None or cancelled.below > 0
    own = {"runId": cancelled.run_id} if cancelled.run_id is not None else {}
    return {"ok": True, "cancelled": is_any, "below": cancelled.below, **own}


@router.post("/sessions/{key}/fork", status_code=201)
async def fork_session(request: Request, key: str, body: ForkBody | None = None) -> dict[str, Any]:
    """A new session with a copy of the log up to `seq`."""
    gateway = gateway_of(request)
    target = gateway.services.sessions.target(key)
    seq = body.seq if body else None
    return gateway.session_row(await gateway.services.forks.fork(principal_of(request), target, seq))


@router.post("/sessions/{key}/messages", openapi_extra=MESSAGE.described())
async def post_message(
    request: Request,
    key: str,
    body: Annotated[MessageBody, Depends(MESSAGE)],
    wait: Annotated[float | None, Query(ge=0, le=MAX_WAIT_SECONDS)] = None,
    stream: bool = False,
    append: bool = False,
) -> Response:
    """Posts a message and answers at once, after its run (`wait`), or while it streams (`stream`)."""
    services = gateway_of(request).services
    principal, target = principal_of(request), services.sessions.target(key)
    if append:
        appended = await services.inbox.append(
            principal,
            target,
            body.parts(),
            message_id=body.message_id,
            role=Role(body.role),
            sender=body.sender,
            occurred_at=body.occurred(),
        )
        return Json(wire.posted(appended))
    if body.role != "user" or body.occurred_at is not None:
        raise Invalid("'role' and 'occurredAt' are for appending. Use ?append=1.", code="invalid_message")
    posted = await services.inbox.post(
        principal,
        target,
        body.parts(),
        message_id=body.message_id,
        mode=body.queue_mode,
        sender=body.sender,
        mentioned=body.mentioned,
    )
    if stream and posted.run_id is not None:
        return await _stream_run(request, posted)
    if wait is not None and posted.run_id is not None:
        return Json({**wire.posted(posted), **await _run_end(request, posted, wait)})
    return Json(wire.posted(posted))


async def _run_end(request: Request, posted: Posted, seconds: float) -> dict[str, Any]:
    assert posted.run_id is not None
    run = await gateway_of(request).services.waits.wait(posted.run_id, timedelta(seconds=seconds))
    if run is None:
        return {"status": "timeout"}
    shown = wire.run(run)
    return {name: shown[name] for name in ("status", "reply", "error", "code") if name in shown}


async def _stream_run(request: Request, posted: Posted) -> Response:
    services = gateway_of(request).services
    assert posted.run_id is not None
    over = False

    def end() -> None:
        nonlocal over
        over = True

    found = await _find(request, posted.session_key)
    return FollowResponse(
        services.hub,
        found.grant,
        after=posted.seq,
        view=run_view(posted.run_id, end),
        first=[frame("message_ack", wire.posted(posted))],
        is_over=lambda: over,
        cut=frame("error", {"code": "stopped", "message": STOPPED, "runId": posted.run_id}),
    )


@router.get("/sessions/{key}/history")
async def get_history(
    request: Request,
    key: str,
    limit: Limit = 50,
    cursor: str | None = None,
    include_tools: Annotated[bool, Query(alias="includeTools")] = False,
    follow: bool = False,
    after: Annotated[int | None, Query(ge=0)] = None,
) -> Response:
    """The newest messages, oldest first; with `follow=1`, live from there on."""
    services = gateway_of(request).services
    principal, target = principal_of(request), services.sessions.target(key)
    resume = _resume_point(request, after)
    is_following = follow or SSE_TYPE in request.headers.get("accept", "")
    view = message_view(include_tools=include_tools)
    if is_following and resume is not None:
        found = await services.sessions.get(principal, target)
        if _is_in_log(found.session, resume):
            return FollowResponse(services.hub, found.grant, after=resume, view=view)
    about = ("GET /sessions/{key}/history", str(principal), repr(target), repr(include_tools))
    page = await services.history.page(
        principal,
        target,
        limit=min(max(limit, 1), 1000),
        before=None if cursor is None else services.cursors.unseal(about, cursor)[0],
        include_tools=include_tools,
    )
    shown = _history(page, lambda seq: services.cursors.seal(about, seq))
    if not is_following:
        return Json(shown)
    first = [frame("history", shown, id=page.last_seq)]
    if resume is not None:
        first.insert(0, frame("reset", {"reason": _reset_reason(page.session, resume)}))
    return FollowResponse(services.hub, page.grant, after=page.last_seq, view=view, first=first)


def _history(page: HistoryPage, seal: Callable[[int], str]) -> dict[str, Any]:
    """The page within 6 MiB: the oldest messages are dropped, and the flags say so."""
    encoded = [(event.seq, wire.message(event)) for event in page.events]
    sizes = [len(wire.compact_json(message)) + 1 for _, message in encoded]
    total, dropped = sum(sizes) + 1, 0
    while total > MAX_PAGE_BYTES and dropped < len(encoded) - 1:
        total -= sizes[dropped]
        dropped += 1
    kept = encoded[dropped:]
    shown: dict[str, Any] = {
        "sessionKey": str(page.session.key),
        "sessionId": page.session.id,
        "messages": [message for _, message in kept],
        "hasMore": page.has_more or dropped > 0,
        "truncated": dropped > 0,
        "droppedMessages": dropped > 0,
        "contentTruncated": False,
        "contentRedacted": False,
        "bytes": total,
    }
    if shown["hasMore"] and kept:
        shown["nextCursor"] = seal(kept[0][0])
    return shown


@router.get("/sessions/{key}/events")
async def follow_events(request: Request, key: str, after: Annotated[int | None, Query(ge=0)] = None) -> Response:
    """Every event of the log, from the start or after a cursor, then live."""
    found = await _find(request, key)
    session, resume = found.session, _resume_point(request, after)
    first: list[bytes] = []
    if resume is not None and not _is_in_log(session, resume):
        first.append(frame("reset", {"reason": _reset_reason(session, resume)}))
        resume = None
    start = session.first_seq - 1 if resume is None else resume
    return FollowResponse(gateway_of(request).services.hub, found.grant, after=start, view=EVENT_VIEW, first=first)


@router.get("/sessions/{key}/transcript")
async def get_transcript(request: Request, key: str) -> Response:
    """The events of the present incarnation, one JSON object a line."""
    services = gateway_of(request).services
    events = services.history.events(principal_of(request), services.sessions.target(key))
    first = await anext(events, None)  # what is refused is refused before an answer begins

    async def lines() -> AsyncIterator[bytes]:
        if first is not None:
            yield _line(first)
        async for event in events:
            yield _line(event)

    return StreamingResponse(lines(), media_type="application/jsonl")


def _line(event: Event) -> bytes:
    return wire.compact_json(wire.event(event)) + b"\n"


async def _find(request: Request, key: str) -> Found:
    sessions = gateway_of(request).services.sessions
    return await sessions.get(principal_of(request), sessions.target(key))


def _resume_point(request: Request, after: int | None) -> int | None:
    text = request.headers.get("last-event-id")
    if text is None:
        return after
    return read_event_id(text)


def _is_in_log(session: Session, cursor: int) -> bool:
    return session.first_seq - 1 <= cursor <= session.last_seq


def _reset_reason(session: Session, cursor: int) -> str:
    return "ahead" if cursor > session.last_seq else "pruned"
