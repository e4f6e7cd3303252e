"""Operations on sessions. Contract: sessions 2, 3, 6 to 8, gateway 4."""

from datetime import timedelta
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import asdict, replace

from antiphon.domain.classification import Classification, parse_level
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import SessionId, SessionRow
from antiphon.domain.keys import SessionKind
from antiphon.domain.label import MAX_LABEL_LENGTH, parse_label
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.session import SessionSummary, SessionType, Source
from antiphon.domain.targets import NamedTarget
from antiphon.domain.tokens import TokenScope
from antiphon.engine.sessions.patches import session_columns
from antiphon.engine.sessions.sessions import ListCursor, SessionAttributes, SessionFilter, SessionPage
from antiphon.engine.views.trees import LastRun
from antiphon.gateway.context import Gateway
from antiphon.gateway.operations.operation import Http, HttpReply, OperationRequest, Params, TargetKind, operation
from antiphon.incoming import misfit
from antiphon.wire import sessions as wire
from antiphon.wire.contents import ContentsShape, contents
from antiphon.wire.encoding import compact_json

MAX_LIMIT = 200
MAX_SEARCH = 200
"""Characters of a search in names; the tool `sessions_list` takes as many."""

Limit: TypeAlias = Annotated[
    int,
    Meta(gt=-(10**18), lt=10**18, description="The highest number of results; clamped to what is allowed."),
]
Label: TypeAlias = Annotated[str, Meta(max_length=MAX_LABEL_LENGTH)]
Search: TypeAlias = Annotated[str, Meta(max_length=MAX_SEARCH)]
Word: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,31}$(?!\n)")]


class ListSessions(Params, frozen=True, kw_only=True):
    limit: Limit = 50
    kinds: list[SessionKind] | None = None
    agent_id: str | None = None
    label: str | None = None
    search: Search | None = None
    active_minutes: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    include_inactive: bool = False
    include_metadata: bool = False
    """Whether each row has the session's metadata, which may be large."""
    cursor: str | None = None


class SourceParams(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The origin of a session."""

    kind: Word = "api"
    interactive: bool = True
    platform: Word | None = None
    trigger_id: str | None = None
    type: SessionType = SessionType.DIRECT


class ClassificationParams(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    level: str

    def parsed(self) -> Classification:
        return Classification(parse_level(self.level))


class CreateSession(Params, frozen=True, kw_only=True):
    """A key, a session id, or neither for a new key."""

    key: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    source: SourceParams = SourceParams()
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    label: Label | None = None
    taint: ClassificationParams | None = None
    clearance: ClassificationParams | None = None


class NamedSession(Params, frozen=True, kw_only=True):
    key: str
    """A key, `main`, or the id of an incarnation."""


class PatchSession(NamedSession, frozen=True, kw_only=True):
    """Changes the named fields; null unsets a field."""

    label: Label | None | UnsetType = UNSET
    display_name: Label | None | UnsetType = UNSET
    description: Annotated[str, Meta(max_length=80)] | None | UnsetType = UNSET
    model: str | None | UnsetType = UNSET
    thinking_level: Literal["off", "low", "medium", "high"] | None | UnsetType = UNSET
    verbose_level: Annotated[str, Meta(max_length=32)] | None | UnsetType = UNSET
    send_policy: Literal["allow", "deny"] | None | UnsetType = UNSET
    queue_mode: QueueMode | None | UnsetType = UNSET
    clearance: ClassificationParams | None | UnsetType = UNSET


class ForkParams(NamedSession, frozen=True, kw_only=True):
    seq: Annotated[int, Meta(ge=1, lt=10**18)] | None = None


def filter_of(request: OperationRequest, params: ListSessions) -> SessionFilter:
    """The rows that the list shows."""
    services, minutes = request.services, params.active_minutes
    return SessionFilter(
        agent_id=services.rules.agent_id(params.agent_id),
        kinds=None if params.kinds is None else frozenset(params.kinds),
        label=params.label,
        search=params.search,
        updated_since=None if minutes is None else services.clock.now() - timedelta(minutes=minutes),
        include_inactive=params.include_inactive,
    )


def row_of(gateway: Gateway, session: SessionSummary, last: LastRun | None) -> wire.SessionShape:
    """A row of a list, without metadata."""
    row = wire.session_row(
        session,
        default_model=gateway.default_model(session.agent_id),
        names_provider=gateway.names_provider,
        last=last,
    )
    return replace(row, metadata=None)


def _row_of(
    request: OperationRequest, params: ListSessions, session: SessionSummary, last: LastRun | None
) -> wire.SessionShape:
    row = row_of(request.gateway, session, last)
    return replace(row, metadata=session.metadata or None) if params.include_metadata else row


async def page_of(request: OperationRequest, params: ListSessions) -> tuple[SessionPage, wire.SessionList]:
    """The page of the list that the caller asks for, and its form. Raises `Denied`."""
    services, minutes = request.services, params.active_minutes
    where = filter_of(request, params)
    kinds = sorted(params.kinds or ())
    asked = (params.agent_id, kinds, params.label, params.search, minutes, params.include_inactive)
    about = ("GET /sessions", str(request.principal), repr(asked))
    after = None
    if params.cursor is not None:
        updated_at_ms, row = services.cursors.unseal(about, params.cursor)
        after = ListCursor(updated_at_ms, SessionRow(row))
    page = await services.sessions.list(
        request.principal, where, limit=min(max(params.limit, 1), MAX_LIMIT), after=after
    )
    following = page.next
    shown = wire.SessionList(
        count=len(page.sessions),
        sessions=[_row_of(request, params, each, page.last_runs.get(each.row)) for each in page.sessions],
        next_cursor=None if following is None else services.cursors.seal(about, following.updated_at_ms, following.row),
    )
    return page, shown


@operation("sessions.list", "GET /sessions", scope=TokenScope.READ)
async def list_sessions(request: OperationRequest, params: ListSessions) -> wire.SessionList:
    """Lists sessions, newest first."""
    return (await page_of(request, params))[1]


@operation(
    "sessions.create",
    Http("POST /sessions", statuses={201: "The session is new.", 200: "The session existed."}),
    scope=TokenScope.WRITE,
)
async def create_session(request: OperationRequest, params: CreateSession) -> HttpReply[wire.SessionShape]:
    """Creates the session (201) or reopens it (200)."""
    services = request.services
    named = params.key if params.key is not None else params.session_id
    if params.key is not None and params.session_id is not None:
        raise Invalid("Session takes 'key' or 'sessionId', not both.", code="invalid_request")
    is_generated = named is None
    namespace = "web" if params.source.platform == "web" else "api"
    named = f"{namespace}:{services.ids.random_hex(12)}" if named is None else named
    agent_id = services.rules.agent_id(params.agent_id)
    target = services.sessions.target(named, agent_id=agent_id)
    if params.session_id is not None and target.session_id is not None:
        target = NamedTarget(None, SessionId(named))
    source = params.source
    opened = await services.sessions.open(
        request.principal,
        target,
        agent_id=agent_id,
        source=Source(**asdict(source)),
        attributes=SessionAttributes(
            label=None if params.label is None else _checked_label("label", params.label),
            metadata=_checked_metadata(params.metadata),
            taint=params.taint.parsed() if params.taint else None,
            clearance=params.clearance.parsed() if params.clearance else None,
            is_generated=is_generated,
        ),
    )
    row = wire.session_row(
        opened.session,
        default_model=request.gateway.default_model(opened.session.agent_id),
        names_provider=request.gateway.names_provider,
    )
    return HttpReply(row, status=201 if opened.is_new else 200)


@operation("sessions.get", "GET /sessions/{key}", scope=TokenScope.READ, target=TargetKind.SESSION)
async def get_session(request: OperationRequest, params: NamedSession) -> wire.SessionShape:
    """Returns the session's row; the id of an ended incarnation returns the row of that one."""
    found = await request.services.sessions.get(request.principal, request.target(params.key))
    return wire.found_row(
        found,
        default_model=request.gateway.default_model(found.session.agent_id),
        names_provider=request.gateway.names_provider,
    )


@operation("sessions.patch", "PATCH /sessions/{key}", scope=TokenScope.WRITE, target=TargetKind.SESSION)
async def patch_session(request: OperationRequest, params: PatchSession) -> wire.SessionShape:
    """Changes the named fields; null unsets a field."""
    named: dict[str, object] = {
        name: value for name, value in asdict(params).items() if name != "key" and value is not UNSET
    }
    if isinstance(model := named.get("model"), str):
        await request.gateway.check_model(model)
    if isinstance(clearance := named.get("clearance"), ClassificationParams):
        named["clearance"] = clearance.parsed()
    for name, shown in (("label", "label"), ("display_name", "displayName")):
        if isinstance(text := named.get(name), str):
            named[name] = _checked_label(shown, text)
    sessions, target = request.services.sessions, request.target(params.key)
    if not named:
        session = (await sessions.get(request.principal, target)).shown
    else:
        session = await sessions.patch(request.principal, target, session_columns(named))
    return wire.session_row(
        session,
        default_model=request.gateway.default_model(session.agent_id),
        names_provider=request.gateway.names_provider,
    )


@operation("sessions.delete", "DELETE /sessions/{key}", scope=TokenScope.WRITE, target=TargetKind.SESSION)
async def delete_session(request: OperationRequest, params: NamedSession) -> wire.DeletedSession:
    """Deletes the session with its log."""
    await request.services.sessions.delete(request.principal, request.target(params.key))
    return wire.DeletedSession(ok=True, deleted=True)


@operation("sessions.reset", "POST /sessions/{key}/reset", scope=TokenScope.WRITE, target=TargetKind.SESSION)
async def reset_session(request: OperationRequest, params: NamedSession) -> wire.SessionShape:
    """Starts a new incarnation under the same key."""
    session = await request.services.resets.reset(request.principal, request.target(params.key))
    return wire.session_row(
        session,
        default_model=request.gateway.default_model(session.agent_id),
        names_provider=request.gateway.names_provider,
    )


@operation("sessions.cancel", "POST /sessions/{key}/cancel", scope=TokenScope.WRITE, target=TargetKind.SESSION)
async def cancel_session(request: OperationRequest, params: NamedSession) -> wire.CancelledWork:
    """Cancels the work of the session and of its descendants."""
    cancelled = await request.services.runs.cancel_session(request.principal, request.target(params.key))
    is_any = cancelled.run_id is not None or cancelled.below > 0
    return wire.CancelledWork(ok=True, cancelled=is_any, below=cancelled.below, run_id=cancelled.run_id)


@operation(
    "sessions.fork",
    Http("POST /sessions/{key}/fork", statuses={201: "The new session."}),
    scope=TokenScope.WRITE,
    target=TargetKind.SESSION,
)
async def fork_session(request: OperationRequest, params: ForkParams) -> wire.SessionShape:
    """Creates a session with a copy of the log up to `seq`."""
    session = await request.services.forks.fork(request.principal, request.target(params.key), params.seq)
    return wire.session_row(
        session,
        default_model=request.gateway.default_model(session.agent_id),
        names_provider=request.gateway.names_provider,
    )


def _checked_label(name: str, text: str) -> str:
    try:
        return parse_label(text)
    except ValueError as error:
        raise misfit(f"{name}: {error}") from error


def _checked_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Raises `Misfit` for whole numbers beyond 64 bits, which no answer could show."""
    try:
        compact_json(metadata)
    except OverflowError as error:
        raise misfit("metadata: contains a number with too many digits") from error
    return metadata


@operation("sessions.contents", "GET /sessions/{key}/contents", scope=TokenScope.READ, target=TargetKind.SESSION)
async def read_contents(request: OperationRequest, params: NamedSession) -> ContentsShape:
    """Returns how much the session holds, which its deletion would take away, and how many children would stay."""
    return contents(await request.services.contents.read(request.principal, request.target(params.key)))
