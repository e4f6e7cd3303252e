"""Operations on messages and events: posting, appending, reading, following. Contract: gateway 1, 4."""

import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace
from starlette.responses import StreamingResponse

from antiphon.domain.actor import channel_of
from antiphon.domain.errors import Invalid, NotFound
from antiphon.domain.event import Event
from antiphon.domain.message import MAX_PARTS, Attribution, ImagePart, Part, Role, TextPart, text_content
from antiphon.domain.person import person_principal
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.session import WEBCHAT
from antiphon.domain.targets import NamedTarget
from antiphon.domain.tokens import TokenScope
from antiphon.engine.sessions.inbox import Envelope
from antiphon.engine.sessions.senders import Speaker
from antiphon.gateway.bodies import LARGE_BYTES
from antiphon.gateway.operations.following import (
    ACCEPT,
    LAST_EVENT_ID,
    After,
    Seconds,
    history_of,
    is_in_log,
    permit_for,
    reset_of,
    resume,
    start_of,
    stream_run,
    view_of,
    with_end,
)
from antiphon.gateway.operations.operation import Answered, Http, OperationRequest, TargetKind, operation
from antiphon.gateway.operations.sessions import Limit, NamedSession
from antiphon.gateway.sse import FollowResponse, event_view, frame, message_view
from antiphon.incoming import GivenAttribution
from antiphon.wire import messages as wire
from antiphon.wire.encoding import compact_json
from antiphon.wire.runs import PostedShape, posted

MAX_MESSAGES = 1000
JSON_LINES = "application/jsonl"


class TextItem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="text", tag_field="type"):
    text: str


class ImageItem(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, tag="image", tag_field="type"
):
    mime_type: Annotated[str, Meta(pattern=r"^image/[a-z0-9.+-]+$(?!\n)", max_length=100)]
    data: str
    """Base64."""


SenderName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]


class SenderParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody who writes in a channel."""

    id: Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,200}$(?!\n)", max_length=200)]
    name: SenderName | None = None


class MessageParams(NamedSession, frozen=True, kw_only=True):
    """`text`, or `content` for parts; `role` and `occurredAt` to append."""

    text: str | None = None
    content: Annotated[list[TextItem | ImageItem], Meta(max_length=MAX_PARTS)] | None = None
    message_id: str | None = None
    queue_mode: QueueMode | None = None
    sender: SenderName | SenderParams | None = None
    """A name to show. With a channel's token: the sender, `{id, name?}`, by the platform's immutable id."""
    mentioned: bool = True
    attribution: GivenAttribution | None = None
    """Whose words it holds, if they are not the sender's: the model sees them as data, and they are untrusted."""
    role: Literal["user", "assistant"] = "user"
    occurred_at: Annotated[int, Meta(ge=0, le=253402300799000)] | None = None
    """Milliseconds since 1970."""

    @property
    def words_of(self) -> Attribution | None:
        return None if self.attribution is None else self.attribution.read()

    @property
    def sender_name(self) -> str | None:
        return self.sender.name if isinstance(self.sender, SenderParams) else self.sender

    def parts(self) -> tuple[Part, ...]:
        """Raises `Invalid` unless exactly one of `text` and `content` is given."""
        if (self.text is None) == (self.content is None):
            raise Invalid("Message needs either 'text' or 'content'.", code="invalid_message")
        if self.content is None:
            return text_content(self.text or "")
        return tuple(_part(item) for item in self.content)


class PostParams(MessageParams, frozen=True, kw_only=True):
    deliver: bool = False
    """Whether message and reply are also sent through the session's channel. Only for owners."""
    wait: Seconds | None = None
    stream: bool = False


class AppendParams(MessageParams, frozen=True, kw_only=True):
    pass


class ReadHistory(NamedSession, frozen=True, kw_only=True):
    limit: Limit = 50
    cursor: str | None = None
    up_to: (
        Annotated[int, Meta(ge=1, lt=10**18, description="End with this `seq`, of a search's result, say.")] | None
    ) = None
    include_tools: bool = False
    follow: bool = False
    after: After | None = None


class FollowEvents(NamedSession, frozen=True, kw_only=True):
    after: After | None = None


_MESSAGES = Http("POST /sessions/{key}/messages", max_body_bytes=LARGE_BYTES)


@operation(
    "sessions.post",
    replace(_MESSAGES, query=("wait", "stream"), is_streamed=True, serves_nodes=True),
    scope=TokenScope.WRITE,
    target=TargetKind.SESSION,
)
async def post_message(request: OperationRequest, params: PostParams) -> PostedShape | FollowResponse:
    """Posts a message. Answers at once, after its run (`wait`), or with a stream (`stream`)."""
    target = request.target(params.key)
    _check_node(request, target, params.key)
    if params.role != "user" or params.occurred_at is not None:
        raise Invalid("'role' and 'occurredAt' are for appending. Use ?append=1.", code="invalid_message")
    parts = params.parts()
    stored = await request.services.inbox.post(
        speaker_of(request, target, params.sender),
        target,
        parts,
        message_id=params.message_id,
        mode=params.queue_mode,
        envelope=Envelope(
            sender=params.sender_name,
            mentioned=params.mentioned,
            attribution=params.words_of,
            is_of_channel=channel_of(request.principal) is not None,
            channel=_channel_of(request),
            deliver=params.deliver,
        ),
    )
    if params.stream and stored.run_id is not None:
        return await stream_run(request, stored, stored.run_id)
    return posted(stored) if params.wait is None else await with_end(request, stored, params.wait)


@operation("sessions.append", replace(_MESSAGES, when="append"), scope=TokenScope.WRITE, target=TargetKind.SESSION)
async def append_message(request: OperationRequest, params: AppendParams) -> PostedShape:
    """Stores a message without starting a run."""
    if params.role != "user" and params.attribution is not None:
        raise Invalid("'attribution' is for messages of role 'user'. Leave it out.", code="invalid_message")
    occurred_at = None
    if params.occurred_at is not None:
        occurred_at = datetime.fromtimestamp(params.occurred_at / 1000, UTC)
    target, parts = request.target(params.key), params.parts()
    stored = await request.services.inbox.append(
        speaker_of(request, target, params.sender),
        target,
        parts,
        message_id=params.message_id,
        role=Role(params.role),
        envelope=Envelope(
            sender=params.sender_name,
            attribution=params.words_of,
            is_of_channel=channel_of(request.principal) is not None,
        ),
        occurred_at=occurred_at,
    )
    return posted(stored)


@operation(
    "sessions.history",
    Http("GET /sessions/{key}/history", headers={"after": LAST_EVENT_ID, "follow": ACCEPT}, is_streamed=True),
    scope=TokenScope.READ,
    target=TargetKind.SESSION,
)
async def read_history(request: OperationRequest, params: ReadHistory) -> wire.HistoryShape | FollowResponse:
    """Returns the newest messages, oldest first; with `follow=1`, continues live."""
    services, principal, target = request.services, request.principal, request.target(params.key)
    view = message_view(services.names, include_tools=params.include_tools)
    if params.follow:
        found = await services.sessions.get(principal, target)
        view = view_of(view, found.as_named.id, is_ended=found.is_ended)
        if params.after is not None and is_in_log(found.as_named, params.after):
            return FollowResponse(services.hub, permit_for(request, target, found.grant), after=params.after, view=view)
    about = ("GET /sessions/{key}/history", str(principal), repr(target), repr(params.include_tools))
    before = None if params.up_to is None else params.up_to + 1
    page = await services.history.page(
        principal,
        target,
        limit=min(max(params.limit, 1), MAX_MESSAGES),
        before=before if params.cursor is None else services.cursors.unseal(about, params.cursor)[0],
        include_tools=params.include_tools,
    )
    await services.names.refresh()
    await services.names.read_compartments(event.classification for event in page.events)
    shown = history_of(page, services.names, lambda seq: services.cursors.seal(about, seq))
    if not params.follow:
        return shown
    first = [frame("history", shown, id=page.last_seq)]
    if params.after is not None:
        first.insert(0, reset_of(page.session, params.after))
    return FollowResponse(
        services.hub,
        permit_for(request, target, page.grant),
        after=page.last_seq,
        view=view,
        first=first,
    )


@operation(
    "sessions.events",
    Http(
        "GET /sessions/{key}/events",
        headers={"after": LAST_EVENT_ID},
        media_type="text/event-stream",
        is_streamed=True,
        is_only=True,
    ),
    scope=TokenScope.READ,
    target=TargetKind.SESSION,
)
async def follow_events(request: OperationRequest, params: FollowEvents) -> wire.EventShape | FollowResponse:
    """Streams every event of the log, from the start or after a cursor, then live."""
    target = request.target(params.key)
    found = await request.services.sessions.get(request.principal, target)
    session = found.as_named
    after, first = resume(session, params.after, otherwise=start_of(found))
    view = view_of(event_view(request.services.names), session.id, is_ended=found.is_ended)
    return FollowResponse(
        request.services.hub,
        permit_for(request, target, found.grant),
        after=after,
        view=view,
        first=first,
    )


@operation(
    "sessions.transcript",
    Http("GET /sessions/{key}/transcript", media_type=JSON_LINES, is_only=True),
    scope=TokenScope.READ,
    target=TargetKind.SESSION,
)
async def read_transcript(request: OperationRequest, params: NamedSession) -> Answered[wire.EventShape]:
    """Returns the events of the present incarnation, or of an ended one by its id, one JSON object per line."""
    target = request.target(params.key)
    await request.services.sessions.get(request.principal, target)
    events, names = request.services.history.events(request.principal, target), request.services.names
    await names.refresh()
    first = await anext(events, None)  # before the answer begins: a store that cannot be read is an error, not a cut

    async def line(event: Event) -> bytes:
        if event.classification.compartments:
            await names.read_compartments([event.classification])
        return compact_json(wire.event(event, names.name_of(event.actor), names.compartments)) + b"\n"

    async def lines() -> AsyncIterator[bytes]:
        if first is not None:
            yield await line(first)
        async for event in events:
            yield await line(event)

    return StreamingResponse(lines(), media_type=JSON_LINES)


def speaker_of(request: OperationRequest, target: NamedTarget, sender: str | SenderParams | None) -> Speaker:
    """Whose words the message holds: the caller's own, or those of the sender for whom a channel speaks.

    Raises `Invalid` for a channel's message without a sender, and for a sender named by anybody else.
    """
    services, caller = request.services, request.principal
    if channel_of(caller) is None:
        if isinstance(sender, SenderParams):
            raise Invalid(
                "Sender with an 'id' is only for tokens of channels. Give a name as text, or leave 'sender' out.",
                code="invalid_message",
            )
        return caller
    if not isinstance(sender, SenderParams):
        raise Invalid("Message of a channel needs its sender: {'id': …, 'name': …}.", code="invalid_message")
    person = person_principal(services.senders.identity(caller, sender.id).person_id)
    services.buckets.take_in_crowd(person, str(caller))
    return services.senders.admitting(caller, target, sender.id, sender.name)


def _check_node(request: OperationRequest, target: NamedTarget, named: str) -> None:
    """Raises `NotFound` unless a node posts to its own session. Contract: keys 1, access 2."""
    if request.node is not None and (target.key is None or str(target.key) != request.node):
        raise NotFound(f"Session not found: {named[:200]!r}. The token of a node posts to {request.node!r} alone.")


def _channel_of(request: OperationRequest) -> str | None:
    """The page is a channel of its own; a program has none."""
    return None if request.browser is None else WEBCHAT


def _part(item: TextItem | ImageItem) -> Part:
    if isinstance(item, TextItem):
        return TextPart(text=item.text)
    try:
        base64.b64decode(item.data, validate=True)
    except ValueError as error:
        raise Invalid("Image is not valid base64.", code="invalid_message") from error
    return ImagePart(mime_type=item.mime_type, data=item.data)
