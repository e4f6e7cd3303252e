"""The web page at `/`, rendered here; `static/page.js` makes it interactive. Contract: gateway 6."""

from collections.abc import Collection, Mapping
from typing import Annotated

from markupsafe import Markup
from msgspec import Meta, Struct, structs
from msgspec.structs import replace
from starlette.responses import FileResponse, Response

from antiphon.domain.actor import Principal
from antiphon.domain.agent import Effect
from antiphon.domain.approval import ApprovalState
from antiphon.domain.errors import AntiphonError, Invalid, NotFound
from antiphon.domain.ids import SessionRow
from antiphon.domain.message import MAX_TEXT_BYTES
from antiphon.domain.session import Source
from antiphon.domain.skill import SkillState
from antiphon.domain.source_words import from_whom
from antiphon.domain.tokens import TokenScope
from antiphon.domain.trusted_content import TrustedContent
from antiphon.engine.runs.decisions import ApprovalFilter
from antiphon.engine.sessions.sessions import SessionFilter
from antiphon.engine.views.search import Hit
from antiphon.engine.views.trees import Roots
from antiphon.gateway.authentication import check_scope, limits_of
from antiphon.gateway.context import Gateway
from antiphon.gateway.operations.operation import Header, Http, NoParams, OperationRequest, Params, operation
from antiphon.gateway.operations.sessions import Search
from antiphon.gateway.page.assets import DIRECTORY, HEADERS
from antiphon.gateway.page.conversation import PageConversation, conversation_head, read_between, read_conversation
from antiphon.gateway.page.entries import PageEntry, request_entry
from antiphon.gateway.page.home import show_home
from antiphon.gateway.page.listing import Folds, Grouping, channel_of, groups_of, items_of, opened_around, plain_item
from antiphon.gateway.page.rendering import html_response
from antiphon.gateway.page.titles import titles_of
from antiphon.gateway.page.views import VIEWS, find_view
from antiphon.policy.acts import Act
from antiphon.wire.approvals import named_in
from antiphon.wire.errors import status_of

AUTHOR = "page author"
"""With the principal, the purpose of a key that tells a browser whose unsent messages are whose."""
MAIN = "main"
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


class PageTrusted(Struct, frozen=True):
    """Content in the list of what is trusted."""

    content: TrustedContent
    what: str
    by: str


WEB = Source(kind="api", platform="web")


class ShowPage(Params, frozen=True, kw_only=True):
    view: str | None = None
    """The name of the view in the main part; a conversation without one."""
    session: str | None = None
    at: Annotated[int, Meta(ge=1, lt=10**18)] | None = None
    """The `seq` of the message to show."""


class ShowSessions(Params, frozen=True, kw_only=True):
    search: Search = ""
    shown: Annotated[int, Meta(ge=1, lt=10**18)] = LISTED
    opened: str = ""
    which: Roots = Roots.CHATS
    group: Grouping = Grouping.NONE
    session: str | None = None


class ShowHeader(Params, frozen=True, kw_only=True):
    session: str


class ShowOlder(Params, frozen=True, kw_only=True):
    session: str
    before: Annotated[int, Meta(ge=1, lt=10**18)]


class ShowBetween(Params, frozen=True, kw_only=True):
    session: str
    after: Annotated[int, Meta(ge=0, lt=10**18)]
    until: Annotated[int, Meta(ge=1, lt=10**18)]


def _at(path: str, **headers: Header) -> Http:
    return Http(f"GET {path}", headers=headers, media_type="text/html", is_lenient=True)


@operation("pages.shell", _at("/"), scope=None)
async def show_shell(request: OperationRequest, params: NoParams) -> Response:
    """The page without content, the same for every caller: its script fetches the content with the page's secret."""
    return html_response("shell.html", {})


@operation("pages.show", _at("/page"), scope=TokenScope.READ)
async def show_page(request: OperationRequest, params: ShowPage) -> Response:
    """The content of the page: navigation and list, and as its main part a view or a conversation."""
    main = await _main(request, params)
    opened = {} if main.conversation is None else opened_around(main.conversation.session)
    gateway, principal = request.gateway, request.principal
    values = {
        **structs.asdict(main),
        "views": [view for view in VIEWS if await view.is_offered(request)],
        "is_new": main.status == 200,
        "agents": await gateway.services.sessions.openable_agents(principal),
        "may_all": await gateway.services.people.may(principal, Act.SET_MODEL),
        "longest_bytes": MAX_TEXT_BYTES,
        "principal": await _principal(gateway, principal),
        "author": gateway.services.home_key.subkey(f"{AUTHOR} {principal}").hex()[:16],
        **await _listed(request, ShowSessions(session=main.key), opened),
    }
    return html_response("page.html", values, status=main.status)


class MainPart(Struct, frozen=True, kw_only=True):
    """What the main part of the page shows; a problem if it has neither view nor conversation."""

    view: str | None = None
    """The name of the view."""
    content: Markup | None = None
    conversation: PageConversation | None = None
    problem: str = NO_SESSIONS
    status: int = 200

    @property
    def key(self) -> str | None:
        return None if self.conversation is None else self.conversation.key


async def _view_of(request: OperationRequest, params: ShowPage) -> str | None:
    """The view that the address names. Without any name it is home, as long as anything needs the reader."""
    if params.view is None and params.session is None and await request.services.overviews.needs(request.principal):
        return show_home.name
    return params.view


async def _main(request: OperationRequest, params: ShowPage) -> MainPart:
    try:
        if (name := await _view_of(request, params)) is not None:
            view = find_view(name)
            check_scope(limits_of(request.on_http.scope), view.scope, serves_bound=False, serves_nodes=False)
            return MainPart(view=view.name, content=await view.shown(request))
        return MainPart(conversation=await _conversation(request.gateway, request.principal, params.session, params.at))
    except AntiphonError as error:
        return MainPart(problem=error.message, status=status_of(error))


@operation("pages.browsers", _at("/page/browsers"), scope=TokenScope.ADMIN)
async def show_browsers(request: OperationRequest, params: NoParams) -> Response:
    """The signed-in browsers. Each but the one that asks has a button that ends it."""
    browsers = await request.services.sign_in.list(request.principal)
    return html_response(
        "browsers.html", {"browsers": browsers, "this": None if request.browser is None else request.browser.id}
    )


@operation("pages.standing", _at("/page/standing"), scope=TokenScope.APPROVALS)
async def show_standing(request: OperationRequest, params: NoParams) -> Response:
    """What is allowed always, the newest. Each has a button that revokes it."""
    standing = await request.services.standing_approvals.list(request.principal, before=None, limit=LISTED_STANDING)
    names = await request.services.names.read(
        str(one) for each in standing for one in (each.principal, each.created_by)
    )
    return html_response("standing.html", {"standing": standing, "names": names})


@operation("pages.trusted", _at("/page/trusted"), scope=TokenScope.APPROVALS)
async def show_trusted(request: OperationRequest, params: NoParams) -> Response:
    """What is trusted of what sessions have read, the newest. Each has a button that revokes it."""
    trusted = await request.services.trusted_contents.list(request.principal, None, limit=LISTED_STANDING)
    names = await request.services.names.read(one for each in trusted for one in (each.actor, str(each.trusted_by)))
    shown = [PageTrusted(each, from_whom(each, names), names.get(str(each.trusted_by), "")) for each in trusted]
    return html_response("trusted.html", {"trusted": shown})


@operation("pages.foreign-tools", _at("/page/foreign-tools"), scope=TokenScope.ADMIN)
async def show_foreign_tools(request: OperationRequest, params: NoParams) -> Response:
    """The tools of MCP servers and packages, each with what it says of itself; the reader confirms what it does."""
    sources = await request.gateway.foreign_tools.list(request.principal)
    return html_response("foreign_tools.html", {"sources": sources, "effects": [*Effect], "words": _words_of})


@operation("pages.skills", _at("/page/skills"), scope=TokenScope.ADMIN)
async def show_skills(request: OperationRequest, params: NoParams) -> Response:
    """The skills of the gateway's home, each with what it says, its files and its hash, and what it counts as."""
    skills = await request.services.skills.list(request.principal)
    return html_response("skills.html", {"skills": skills, "states": _SKILL_STATES})


_SKILL_STATES = {
    SkillState.TRUSTED: "trusted",
    SkillState.UNTRUSTED: "offered without trust",
    SkillState.UNREVIEWED: "not reviewed",
    SkillState.CHANGED: "changed since its review",
    SkillState.BROKEN: "no skill",
    SkillState.MISSING: "missing in this home",
}


def _words_of(effects: Collection[Effect]) -> str:
    """In their own order."""
    return ", ".join(effect.value for effect in Effect if effect in effects)


@operation("pages.approvals", _at("/page/approvals"), scope=TokenScope.APPROVALS)
async def show_approvals(request: OperationRequest, params: NoParams) -> Response:
    """The open requests that the reader may decide, newest first, each on its card, without the sessions that ask."""
    services, where = request.services, ApprovalFilter(state=ApprovalState.PENDING)
    found = await services.approvals.list(request.principal, where, limit=LISTED_APPROVALS + 1)
    names = await services.names.read(name for approval in found for name in named_in(approval))
    requests = [
        PageRequest(
            request_entry(
                approval,
                names,
                agent=titles_of(request.gateway).agent(approval.agent_id),
                title=None,
            ),
            agent=titles_of(request.gateway).agent(approval.agent_id),
            session=approval.session_key,
        )
        for approval in found[:LISTED_APPROVALS]
    ]
    has_more = len(found) > LISTED_APPROVALS
    may_all = await services.people.may(request.principal, Act.SET_MODEL)
    return html_response("approvals.html", {"requests": requests, "has_more": has_more, "may_all": may_all})


@operation("pages.admitting", _at("/page/admitting"), scope=TokenScope.ADMIN)
async def show_admitting(request: OperationRequest, params: NoParams) -> Response:
    """The people who wait to be admitted, and the groups that no owner has decided about, each with its buttons."""
    people = await request.services.pairings.list(request.principal)
    groups = await request.services.groups.list(request.principal)
    asking = [group for group in groups if group.is_asking]
    return html_response("admitting.html", {"people": people, "groups": asking})


@operation("pages.icon", _at("/favicon.ico"), scope=None)
async def show_icon(request: OperationRequest, params: NoParams) -> Response:
    return FileResponse(DIRECTORY / "favicon.svg", media_type="image/svg+xml", headers=HEADERS)


@operation("pages.sessions", _at("/page/sessions"), scope=TokenScope.READ)
async def show_sessions(request: OperationRequest, params: ShowSessions) -> Response:
    """The list, newest first, with the children of opened sessions."""
    opened = Folds(request.services.cursors).read(params.opened)
    return html_response("sessions.html", await _listed(request, params, opened))


@operation("pages.header", _at("/page/header"), scope=TokenScope.READ)
async def show_header(request: OperationRequest, params: ShowHeader) -> Response:
    """The head of a conversation: name, state and usage."""
    conversation = await conversation_head(request.gateway, request.principal, params.session)
    may_all = await request.services.people.may(request.principal, Act.SET_MODEL)
    values = {"conversation": conversation, "titles": titles_of(request.gateway), "may_all": may_all}
    return html_response("header.html", values)


@operation("pages.older", _at("/page/older"), scope=TokenScope.READ)
async def show_older(request: OperationRequest, params: ShowOlder) -> Response:
    """The entries before a cursor, and the mark that loads still older ones."""
    conversation = await read_conversation(request.gateway, request.principal, params.session, before=params.before)
    return html_response("entries.html", {"conversation": conversation})


@operation("pages.between", _at("/page/between"), scope=TokenScope.READ)
async def show_between(request: OperationRequest, params: ShowBetween) -> Response:
    """The entries that a page left out between two others."""
    head = await conversation_head(request.gateway, request.principal, params.session)
    entries = await read_between(
        request.gateway, request.principal, params.session, after=params.after, until=params.until
    )
    return html_response("entries.html", {"conversation": replace(head, entries=entries)})


async def _conversation(
    gateway: Gateway, principal: Principal, name: str | None, at: int | None
) -> PageConversation | None:
    """The named session, else the default agent's main one, which is created if it does not exist.

    For a person who may not open that one: the newest of their own, or None.
    """
    sessions = gateway.services.sessions
    may_open = name in (None, MAIN) and await gateway.services.people.may(principal, Act.OPEN)
    if name is None and not may_open:
        newest = (await sessions.list(principal, SessionFilter(), limit=1)).sessions
        if not newest:
            return None
        name = str(newest[0].key)
    if may_open:
        try:
            await sessions.get(principal, sessions.target(MAIN))
        except NotFound:
            await sessions.open(principal, sessions.target(MAIN), source=WEB)
    return await read_conversation(gateway, principal, name or MAIN, at=at)


async def _principal(gateway: Gateway, principal: Principal) -> str:
    """As whom the reader acts: the page does not tell them who they are."""
    await gateway.services.names.refresh()
    person = gateway.services.names.find(str(principal))
    return str(principal if person is None else person.principal)


async def _listed(
    request: OperationRequest, params: ShowSessions, opened: Mapping[SessionRow, int]
) -> dict[str, object]:
    services, principal = request.services, request.principal
    shown, titles, folds = min(params.shown, MOST_LISTED), titles_of(request.gateway), Folds(services.cursors)
    hits: list[Hit] = []
    if wanted := params.search.strip()[:200]:
        where = SessionFilter(search=wanted, include_inactive=True)
        page = await services.sessions.list(principal, where, limit=shown)
        hits = await _hits(request.gateway, principal, wanted)
        items = [plain_item(session, page.last_runs.get(session.row)) for session in page.sessions]
        has_more = page.next is not None
    else:
        tree = await services.trees.folded(principal, opened, roots=shown, which=params.which)
        items, has_more = items_of(tree, opened, services.clock.now()), tree.has_more
    return {
        "groups": groups_of(items, Grouping.NONE if wanted else params.group, titles),
        "has_channels": len({channel_of(item.session) for item in items}) > 1,
        "counts": await services.trees.counts(principal),
        "which": params.which,
        "group": params.group,
        "hits": hits,
        "search": params.search,
        "shown": shown,
        "first": LISTED,
        "opened": folds.write(opened),
        "folds": folds,
        "more": min(shown + LISTED, MOST_LISTED) if has_more and shown < MOST_LISTED else None,
        "current": params.session,
        "needs": await services.overviews.needs(principal),
        "to_approve": await services.approvals.count_open(principal),
        "to_admit": await services.pairings.count_waiting(principal),
        "titles": titles,
    }


async def _hits(gateway: Gateway, principal: Principal, wanted: str) -> list[Hit]:
    """The newest messages with all these words; none if there is no word in the text."""
    try:
        return (await gateway.services.search.messages(principal, wanted, limit=HITS)).hits
    except Invalid:
        return []
