"""The web page at `/`: rendered here, brought to life by `static/page.js`. Contract: gateway 6."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, FastAPI, Header, Query, Request, Response
from fastapi.responses import FileResponse, HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from antiphon.domain.actor import Principal
from antiphon.domain.errors import AntiphonError, NotFound
from antiphon.domain.event import Event
from antiphon.domain.ids import SessionRow
from antiphon.domain.message import UserMessage
from antiphon.domain.session import Source
from antiphon.domain.text import compact, plain
from antiphon.engine.ledger.text_work import size_of, work_on
from antiphon.engine.sessions.sessions import SessionFilter
from antiphon.gateway.assets import DIRECTORY, HEADERS, Assets, asset
from antiphon.gateway.context import Gateway, browser_of, gateway_of
from antiphon.gateway.conversation import Conversation, conversation_head, read_conversation, title_of
from antiphon.gateway.entries import Entry, entries_of, entry_of
from antiphon.gateway.guard import status_of
from antiphon.gateway.listing import Item, items_of, opened_around, plain_item, read_opened, write_opened
from antiphon.gateway.requests import MAX_SEARCH
from antiphon.gateway.sse import EVENT_VIEW, FollowResponse, frame

LISTED = 40
MOST_LISTED = 1000
MAX_SEQ = 2**62
WEB = Source(kind="api", platform="web")

router = APIRouter(include_in_schema=False)


def mount(api: FastAPI) -> None:
    """Adds the page's routes."""
    api.include_router(router)
    api.mount("/static", Assets())


@router.get("/")
async def index() -> Response:
    """The page without any content, the same for everybody: its script fetches that with the page's secret."""
    return _html("shell.html", {})


@router.get("/page")
async def page(request: Request, session: str | None = None) -> Response:
    """What the page shows: the list, and the conversation."""
    gateway, principal = gateway_of(request), _principal(request)
    conversation, status, problem = None, 200, ""
    try:
        conversation = await _conversation(gateway, principal, session)
    except AntiphonError as error:
        status, problem = status_of(error), error.message
    opened = {} if conversation is None else opened_around(conversation.session)
    key = None if conversation is None else conversation.key
    listed = await _listed(gateway, principal, search="", shown=LISTED, current=key, opened=opened)
    agents = list(gateway.services.rules.agents.values())
    values = {"conversation": conversation, "problem": problem, "agents": agents, **listed}
    return _html("page.html", values, status=status)


@router.get("/page/browsers")
async def browsers_fragment(request: Request) -> Response:
    """The browsers that are signed in, each but the one that asks with a way to end it."""
    browser = browser_of(request)
    browsers = await gateway_of(request).services.sign_in.list(_principal(request))
    return _html("browsers.html", {"browsers": browsers, "this": None if browser is None else browser.id})


@router.get("/favicon.ico")
async def favicon() -> Response:
    return FileResponse(DIRECTORY / "favicon.svg", media_type="image/svg+xml", headers=HEADERS)


@router.get("/page/sessions")
async def sessions_fragment(
    request: Request,
    search: Annotated[str, Query(max_length=MAX_SEARCH)] = "",
    shown: Annotated[int, Query(ge=1)] = LISTED,
    opened: str = "",
    session: str | None = None,
) -> Response:
    """The list, newest first, with the children of those that are opened."""
    listed = await _listed(
        gateway_of(request),
        _principal(request),
        search=search,
        shown=shown,
        current=session,
        opened=read_opened(opened),
    )
    return _html("sessions.html", listed)


@router.get("/page/header")
async def header_fragment(request: Request, session: str) -> Response:
    """The head of a conversation: name, state and usage."""
    conversation = await conversation_head(gateway_of(request), _principal(request), session)
    return _html("header.html", {"conversation": conversation})


@router.get("/page/older")
async def older_fragment(request: Request, session: str, before: Annotated[int, Query(ge=1)]) -> Response:
    """The entries before a cursor, and the mark that loads those before them."""
    gateway, principal = gateway_of(request), _principal(request)
    conversation = await read_conversation(gateway, principal, session, before=before)
    return _html("entries.html", {"conversation": conversation})


@router.get("/page/follow")
async def follow(request: Request, session: str, last_event_id: Annotated[int, Header(ge=0, le=MAX_SEQ)]) -> Response:
    """The log after the `Last-Event-ID`, live: one frame an event, with the HTML that people see of it."""
    gateway, after = gateway_of(request), last_event_id
    sessions = gateway.services.sessions
    opened = await sessions.get(_principal(request), sessions.target(session))
    found = opened.session
    if found.first_seq - 1 <= after <= found.last_seq:
        return FollowResponse(gateway.services.hub, opened.grant, after=after, view=PAGE_VIEW)
    reason = "ahead" if after > found.last_seq else "pruned"
    first = [frame("reset", {"reason": reason})]
    return FollowResponse(gateway.services.hub, opened.grant, after=found.last_seq, view=PAGE_VIEW, first=first)


def _encode(event: Event) -> bytes:
    entry = entry_of(event)
    message_id = event.message.message_id if isinstance(event.message, UserMessage) else None
    return frame(
        "entry",
        {
            "seq": event.seq,
            "type": event.type,
            "sessionId": event.session_id,
            "runId": event.run_id,
            "messageId": message_id,
            "html": "" if entry is None else _entry_html(entry),
        },
        id=event.seq,
    )


async def _prepare(events: Sequence[Event]) -> None:
    """What takes long to render is rendered elsewhere, and kept until `_encode` asks for it."""
    await work_on(size_of(event.message for event in events), entries_of, events)


PAGE_VIEW = replace(EVENT_VIEW, encode=_encode, prepare=_prepare)


def _principal(request: Request) -> Principal:
    principal = request.scope["antiphon.principal"]
    assert isinstance(principal, Principal)
    return principal


async def _conversation(gateway: Gateway, principal: Principal, name: str | None) -> Conversation:
    """The session that is named, else the default agent's main one, which comes into being."""
    if name is None:
        sessions = gateway.services.sessions
        try:
            await sessions.get(principal, sessions.target("main"))
        except NotFound:
            await sessions.open(principal, sessions.target("main"), source=WEB)
    return await read_conversation(gateway, principal, name or "main")


async def _listed(
    gateway: Gateway,
    principal: Principal,
    *,
    search: str,
    shown: int,
    current: str | None,
    opened: Mapping[SessionRow, int],
) -> dict[str, object]:
    shown = min(shown, MOST_LISTED)
    if wanted := search.strip()[:200]:
        page = await gateway.services.sessions.list(principal, SessionFilter(search=wanted), limit=shown)
        items, has_more = [plain_item(session) for session in page.sessions], page.next is not None
    else:
        tree = await gateway.services.trees.folded(principal, opened, roots=shown)
        items, has_more = items_of(tree, opened, gateway.services.clock.now()), tree.has_more
    return {
        "items": items,
        "search": search,
        "shown": shown,
        "opened": write_opened(opened),
        "more": min(shown + LISTED, MOST_LISTED) if has_more and shown < MOST_LISTED else None,
        "current": current,
        "agent_names": {agent.id: agent.name for agent in gateway.services.rules.agents.values()},
    }


def _dollars(microusd: int | None) -> str:
    if microusd is None:
        return "not known"
    return f"${microusd / 1_000_000:.2f}" if microusd >= 10_000 else f"${microusd / 1_000_000:.4f}"


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


def _sessions(count: int) -> str:
    return f"{count:,} session{'' if count == 1 else 's'}"


def _spent(item: Item) -> str:
    """What the session used, in a few letters: money where the price is known, else tokens."""
    return _sum_of(item.tokens, item.cost_microusd)


def _all_spent(item: Item) -> str:
    """What the session and all below it used."""
    return _sum_of(item.all_tokens, item.all_cost_microusd)


def _sum_of(tokens: int, microusd: int | None) -> str:
    if microusd is not None:
        return _dollars(microusd)
    return f"{compact(tokens)} tokens" if tokens else ""


_templates = Environment(
    loader=PackageLoader("antiphon.gateway"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_templates.filters["asset"] = asset
_templates.filters["title_of"] = title_of
_templates.filters["plain"] = plain
_templates.filters["dollars"] = _dollars
_templates.filters["spent"] = _spent
_templates.filters["all_spent"] = _all_spent
_templates.filters["sessions"] = _sessions
_templates.filters["count"] = "{:,}".format
_templates.filters["moment"] = _moment


def _html(template: str, values: Mapping[str, object], *, status: int = 200) -> HTMLResponse:
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return HTMLResponse(_templates.get_template(template).render(values), status, headers=headers)


def _entry_html(entry: Entry) -> str:
    return _templates.get_template("entry.html").render(entry=entry)
