"""The view of routes: which agent and session the chats of channels use."""

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlencode

from markupsafe import Markup
from msgspec import Struct

from antiphon.domain.ids import AgentId
from antiphon.domain.text import exact
from antiphon.domain.tokens import TokenScope
from antiphon.engine.chats.routing import ShownRoute
from antiphon.gateway.operations.operation import NoParams, OperationRequest
from antiphon.gateway.page.page_view import page_view
from antiphon.gateway.page.rendering import render
from antiphon.gateway.page.titles import titles_of
from antiphon.policy.acts import Act


class RouteRow(Struct, frozen=True, kw_only=True):
    """A chat for which somebody chose an agent or a session."""

    fields: Sequence[tuple[str, str]]
    """What names the chat in a request."""
    chat: str
    agent: str
    chosen: AgentId | None
    session_key: str | None
    is_fallback: bool
    version: int
    who: str
    changed_at: datetime

    @property
    def address(self) -> str:
        return f"/routes?{urlencode([*self.fields, ('version', self.version)])}"


@page_view("routes", "Routes", scope=TokenScope.ADMIN, act=Act.CHATS)
async def show_routes(request: OperationRequest, params: NoParams) -> Markup:
    """The routes, each with a form that changes it, and a form for a chat that follows the settings."""
    found = [each for each in await request.services.routes.list(request.principal) if _is_chosen(each)]
    titles = titles_of(request.gateway)
    names = await request.services.names.read(each.stored.changed_by for each in found)
    values = {
        "routes": [_row(each, titles.agent(each.agent_id), names.get(each.stored.changed_by)) for each in found],
        "agents": [(agent.id, titles.agent(agent.id)) for agent in request.services.rules.agents.values()],
        "channels": sorted({channel for channel, _ in request.services.rules.chats.channels}),
    }
    return render("routes.html", values)


def _is_chosen(shown: ShownRoute) -> bool:
    """Whether it chooses anything: a route that was cleared keeps its version."""
    return shown.stored.agent_id is not None or shown.stored.session_key is not None


def _row(shown: ShownRoute, agent: str, who: str | None) -> RouteRow:
    stored = shown.stored
    named = [("channel", stored.channel), ("account", stored.account), ("peer", stored.peer)]
    if stored.thread:
        named.append(("thread", stored.thread))
    account = "" if stored.account == "default" else f" {exact(stored.account)}"
    thread = f", topic {exact(stored.thread)}" if stored.thread else ""
    return RouteRow(
        fields=named,
        chat=f"{exact(stored.channel)}{account} {exact(stored.peer)}{thread}",
        agent=agent,
        chosen=stored.agent_id,
        session_key=stored.session_key,
        is_fallback=shown.is_fallback,
        version=stored.version,
        who=who or stored.changed_by,
        changed_at=stored.changed_at,
    )
