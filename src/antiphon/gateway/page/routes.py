"""The web page at `/`, rendered here; `static/page.js` makes it interactive. Contract: gateway 6."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated

from jinja2 import Environment, PackageLoader, StrictUndefined
from msgspec import Meta, Struct
from msgspec.structs import replace
from starlette.responses import FileResponse, HTMLResponse, Response

from antiphon.domain.actor import Principal
from antiphon.domain.approval import ApprovalState
from antiphon.domain.errors import AntiphonError, Invalid, NotFound
from antiphon.domain.event import Event
from antiphon.domain.ids import SessionRow
from antiphon.domain.message import MAX_TEXT_BYTES, UserMessage
from antiphon.domain.session import Source
from antiphon.domain.text import compact, exact, plain
from antiphon.domain.tokens import TokenScope
from antiphon.engine.access.names import PersonNames
from antiphon.engine.ledger.text_work import size_of, work_on
from antiphon.engine.runs.decisions import ApprovalFilter
from antiphon.engine.sessions.sessions import SessionFilter
from antiphon.engine.views.search import Hit
from antiphon.feed.follow import View
from antiphon.gateway.context import Gateway
from antiphon.gateway.operations.following import LAST_EVENT_ID, permit_for, resume
from antiphon.gateway.operations.operation import Ask, Header, Http, NoParams, Params, operation
from antiphon.gateway.operations.sessions import Search
from antiphon.gateway.page.assets import DIRECTORY, HEADERS, asset
from antiphon.gateway.page.conversation import PageConversation, conversation_head, read_between, read_conversation
from antiphon.gateway.page.entries import PageEntry, asked_in, entries_of, entry_of, request_entry
from antiphon.gateway.page.listing import Folds, Item, items_of, opened_around, plain_item
from antiphon.gateway.page.titles import titles_of
from antiphon.gateway.sse import FollowResponse, event_view, frame
from antiphon.policy.acts import Act
from antiphon.program import public_path
from antiphon.wire.errors import status_of

AUTHOR = "page author"
"""With the principal, the purpose of a key that tells a browser whose unsent messages are whose."""
LISTED = 40
MOST_LISTED = 1000
LISTED_STANDING = 100
LISTED_APPROVALS = 50
HITS = 30
"""How many messages a search shows."""
NO_SESSIONS = "You take part in no session yet. Begin one with “New chat”, or ask an owner for one."


class PageRequest(Struct, frozen=True):
    """An open request in the list of those to approve."""

    entry: PageEntry
    agent: str
    session: str
    """The key of the session that asks."""


WEB = Source(kind="api", platform="web")


class ShowPage(Params, frozen=True, kw_only=True):
    session: str | None = None
    at: Annotated[int, Meta(ge=1, lt=10**18)] | None = None
    """The `seq` of the message to show."""


class ShowSessions(Params, frozen=True, kw_only=True):
    search: Search = ""
    shown: Annotated[int, Meta(ge=1)] = LISTED
    opened: str = ""
    session: str | None = None


class ShowHeader(Params, frozen=True, kw_only=True):
    session: str


class ShowOlder(Params, frozen=True, kw_only=True):
    session: str
    before: Annotated[int, Meta(ge=1)]


class ShowBetween(Params, frozen=True, kw_only=True):
    session: str
    after: Annotated[int, Meta(ge=0)]
    until: Annotated[int, Meta(ge=1)]


class FollowPage(Params, frozen=True, kw_only=True):
    session: str
    after: int
    """The same as `Last-Event-ID`."""


def _at(path: str, **headers: Header) -> Http:
    return Http(method="GET", path=path, headers=headers, media_type="text/html", is_lenient=True)


@operation("pages.shell", NoParams, Response, _at("/"), scope=None)
async def show_shell(ask: Ask, params: NoParams) -> Response:
    """The page without content, the same for every caller: its script fetches the content with the page's secret."""
    return _html("shell.html", {})


@operation("pages.show", ShowPage, Response, _at("/page"), scope=TokenScope.READ)
async def show_page(ask: Ask, params: ShowPage) -> Response:
    """The content of the page: the list and the conversation."""
    gateway, principal = ask.gateway, ask.principal
    conversation, status, problem = None, 200, NO_SESSIONS
    may_all = await gateway.services.people.may(principal, Act.SET_MODEL)
    try:
        conversation = await _conversation(gateway, principal, params.session, params.at)
    except AntiphonError as error:
        status, problem = status_of(error), error.message
    opened = {} if conversation is None else opened_around(conversation.session)
    key = None if conversation is None else conversation.key
    listed = await _listed(gateway, principal, search="", shown=LISTED, current=key, opened=opened)
    agents = await gateway.services.sessions.openable_agents(principal)
    values = {
        "conversation": conversation,
        "problem": problem,
        "is_new": status == 200,
        "agents": agents,
        "may_all": may_all,
        "longest_bytes": MAX_TEXT_BYTES,
        "principal": await _principal(gateway, principal),
        "author": gateway.services.home_key.subkey(f"{AUTHOR} {principal}").hex()[:16],
        **listed,
    }
    return _html("page.html", values, status=status)


@operation("pages.browsers", NoParams, Response, _at("/page/browsers"), scope=TokenScope.ADMIN)
async def show_browsers(ask: Ask, params: NoParams) -> Response:
    """The signed-in browsers. Each but the one that asks has a button that ends it."""
    browsers = await ask.services.sign_in.list(ask.principal)
    return _html("browsers.html", {"browsers": browsers, "this": None if ask.browser is None else ask.browser.id})


@operation("pages.standing", NoParams, Response, _at("/page/standing"), scope=TokenScope.APPROVALS)
async def show_standing(ask: Ask, params: NoParams) -> Response:
    """What is allowed always, the newest. Each has a button that revokes it."""
    standing = await ask.services.standing_approvals.list(ask.principal, before=None, limit=LISTED_STANDING)
    names = await ask.services.names.read(str(one) for each in standing for one in (each.principal, each.created_by))
    return _html("standing.html", {"standing": standing, "names": names})


@operation("pages.approvals", NoParams, Response, _at("/page/approvals"), scope=TokenScope.APPROVALS)
async def show_approvals(ask: Ask, params: NoParams) -> Response:
    """The open requests that the reader may decide, newest first, each on its card, without the sessions that ask."""
    services, where = ask.services, ApprovalFilter(state=ApprovalState.PENDING)
    found = await services.approvals.list(ask.principal, where, limit=LISTED_APPROVALS + 1)
    names = await services.names.read(str(approval.principal) for approval in found)
    requests = [
        PageRequest(
            request_entry(approval, names.get(str(approval.principal), str(approval.principal))),
            agent=titles_of(ask.gateway).agent(approval.agent_id),
            session=approval.session_key,
        )
        for approval in found[:LISTED_APPROVALS]
    ]
    has_more = len(found) > LISTED_APPROVALS
    may_all = await services.people.may(ask.principal, Act.SET_MODEL)
    return _html("approvals.html", {"requests": requests, "has_more": has_more, "may_all": may_all})


@operation("pages.admitting", NoParams, Response, _at("/page/admitting"), scope=TokenScope.ADMIN)
async def show_admitting(ask: Ask, params: NoParams) -> Response:
    """The people who wait to be admitted, and the groups that no owner has decided about, each with its buttons."""
    people = await ask.services.pairings.list(ask.principal)
    groups = await ask.services.groups.list(ask.principal)
    asking = [group for group in groups if group.is_asking]
    return _html("admitting.html", {"people": people, "groups": asking})


@operation("pages.icon", NoParams, Response, _at("/favicon.ico"), scope=None)
async def show_icon(ask: Ask, params: NoParams) -> Response:
    return FileResponse(DIRECTORY / "favicon.svg", media_type="image/svg+xml", headers=HEADERS)


@operation("pages.sessions", ShowSessions, Response, _at("/page/sessions"), scope=TokenScope.READ)
async def show_sessions(ask: Ask, params: ShowSessions) -> Response:
    """The list, newest first, with the children of opened sessions."""
    listed = await _listed(
        ask.gateway,
        ask.principal,
        search=params.search,
        shown=params.shown,
        current=params.session,
        opened=Folds(ask.services.cursors).read(params.opened),
    )
    return _html("sessions.html", listed)


@operation("pages.header", ShowHeader, Response, _at("/page/header"), scope=TokenScope.READ)
async def show_header(ask: Ask, params: ShowHeader) -> Response:
    """The head of a conversation: name, state and usage."""
    conversation = await conversation_head(ask.gateway, ask.principal, params.session)
    may_all = await ask.services.people.may(ask.principal, Act.SET_MODEL)
    values = {"conversation": conversation, "titles": titles_of(ask.gateway), "may_all": may_all}
    return _html("header.html", values)


@operation("pages.older", ShowOlder, Response, _at("/page/older"), scope=TokenScope.READ)
async def show_older(ask: Ask, params: ShowOlder) -> Response:
    """The entries before a cursor, and the mark that loads still older ones."""
    conversation = await read_conversation(ask.gateway, ask.principal, params.session, before=params.before)
    return _html("entries.html", {"conversation": conversation})


@operation("pages.between", ShowBetween, Response, _at("/page/between"), scope=TokenScope.READ)
async def show_between(ask: Ask, params: ShowBetween) -> Response:
    """The entries that a page left out between two others."""
    head = await conversation_head(ask.gateway, ask.principal, params.session)
    entries = await read_between(ask.gateway, ask.principal, params.session, after=params.after, until=params.until)
    return _html("entries.html", {"conversation": replace(head, entries=entries)})


@operation("pages.follow", FollowPage, Response, _at("/page/follow", after=LAST_EVENT_ID), scope=TokenScope.READ)
async def follow_page(ask: Ask, params: FollowPage) -> Response:
    """Streams the log after the `Last-Event-ID`, live: one frame per event, with the HTML that people see."""
    target = ask.target(params.session)
    found = await ask.services.sessions.get(ask.principal, target)
    after, first = resume(found.session, params.after, otherwise=found.session.last_seq)
    return FollowResponse(
        ask.services.hub,
        permit_for(ask, target, found.grant),
        after=after,
        view=page_view(ask.services.names),
        first=first,
    )


ROUTES = (
    show_shell,
    show_page,
    show_browsers,
    show_standing,
    show_approvals,
    show_admitting,
    show_icon,
    show_sessions,
    show_header,
    show_older,
    show_between,
    follow_page,
)
"""Not in the table: these are for people, not for programs."""


@lru_cache(maxsize=8)
def page_view(names: PersonNames) -> View:
    """The log as the page shows it; each event is rendered once for all pages of the gateway."""

    def encode(event: Event) -> bytes:
        entry = entry_of(event, names.find)
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

    async def prepare(events: Sequence[Event]) -> None:
        """Renders slow parts off the event loop and caches them for `encode`."""
        await names.read(asked_in(events))
        await work_on(size_of(event.message for event in events), entries_of, events, names.find)

    return replace(event_view(names), encode=encode, prepare=prepare)


async def _conversation(
    gateway: Gateway, principal: Principal, name: str | None, at: int | None
) -> PageConversation | None:
    """The named session, else the default agent's main one, which is created if it does not exist.

    For a person who may not open that one: the newest of their own, or None.
    """
    sessions = gateway.services.sessions
    if name is None and not await gateway.services.people.may(principal, Act.OPEN):
        newest = (await sessions.list(principal, SessionFilter(), limit=1)).sessions
        if not newest:
            return None
        name = str(newest[0].key)
    if name is None:
        try:
            await sessions.get(principal, sessions.target("main"))
        except NotFound:
            await sessions.open(principal, sessions.target("main"), source=WEB)
    return await read_conversation(gateway, principal, name or "main", at=at)


async def _principal(gateway: Gateway, principal: Principal) -> str:
    """As whom the reader acts: the page does not tell them who they are."""
    await gateway.services.names.refresh()
    person = gateway.services.names.find(str(principal))
    return str(principal if person is None else person.principal)


async def _listed(
    gateway: Gateway,
    principal: Principal,
    *,
    search: str,
    shown: int,
    current: str | None,
    opened: Mapping[SessionRow, int],
) -> dict[str, object]:
    shown, folds = min(shown, MOST_LISTED), Folds(gateway.services.cursors)
    hits: list[Hit] = []
    if wanted := search.strip()[:200]:
        where = SessionFilter(search=wanted, include_inactive=True)
        page = await gateway.services.sessions.list(principal, where, limit=shown)
        hits = await _hits(gateway, principal, wanted)
        items, has_more = (
            [plain_item(session, page.last_runs.get(session.row)) for session in page.sessions],
            page.next is not None,
        )
    else:
        tree = await gateway.services.trees.folded(principal, opened, roots=shown)
        items, has_more = items_of(tree, opened, gateway.services.clock.now()), tree.has_more
    return {
        "items": items,
        "hits": hits,
        "search": search,
        "shown": shown,
        "opened": folds.write(opened),
        "folds": folds,
        "more": min(shown + LISTED, MOST_LISTED) if has_more and shown < MOST_LISTED else None,
        "current": current,
        "to_approve": await gateway.services.approvals.count_open(principal),
        "to_admit": await gateway.services.pairings.count_waiting(principal),
        "titles": titles_of(gateway),
    }


async def _hits(gateway: Gateway, principal: Principal, wanted: str) -> list[Hit]:
    """The newest messages with all these words; none if there is no word in the text."""
    try:
        return (await gateway.services.search.messages(principal, wanted, limit=HITS)).hits
    except Invalid:
        return []


def _dollars(microusd: int | None) -> str:
    if microusd is None:
        return "unknown"
    return f"${microusd / 1_000_000:.2f}" if microusd >= 10_000 else f"${microusd / 1_000_000:.4f}"


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


def _sessions(count: int) -> str:
    return f"{count:,} session{'' if count == 1 else 's'}"


def _spent(item: Item) -> str:
    """The session's usage, short: money if the price is known, else tokens."""
    return _sum_of(item.tokens, item.cost_microusd)


def _all_spent(item: Item) -> str:
    """The usage of the session and its descendants."""
    return _sum_of(item.all_tokens, item.all_cost_microusd)


def _sum_of(tokens: int, microusd: int | None) -> str:
    if microusd is not None:
        return _dollars(microusd)
    return f"{compact(tokens)} tokens" if tokens else ""


_templates = Environment(
    loader=PackageLoader("antiphon.gateway.page"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_templates.filters["asset"] = asset
_templates.filters["plain"] = plain
_templates.filters["exact"] = exact
_templates.filters["dollars"] = _dollars
_templates.filters["spent"] = _spent
_templates.filters["all_spent"] = _all_spent
_templates.filters["sessions"] = _sessions
_templates.filters["count"] = "{:,}".format
_templates.filters["moment"] = _moment


def _html(template: str, values: Mapping[str, object], *, status: int = 200) -> HTMLResponse:
    headers = {**HEADERS, "Cache-Control": "no-store"}
    content = _templates.get_template(template).render(values, program=public_path())
    return HTMLResponse(content, status, headers=headers)


def _entry_html(entry: PageEntry) -> str:
    return _templates.get_template("entry.html").render(entry=entry, program=public_path())
