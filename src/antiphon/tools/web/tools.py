"""The tools of the web that the settings give to agents."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from antiphon.domain.classification import Classification
from antiphon.domain.search_kind import SearchKind
from antiphon.engine.access.callers import Callers
from antiphon.engine.rules import Rules
from antiphon.policy.web_addresses import WebRules
from antiphon.tools.fetch_page import fetch_page
from antiphon.tools.search_web import search_web
from antiphon.tools.session_tool import SessionTool
from antiphon.tools.web.fetching import Fetcher
from antiphon.tools.web.network import Network
from antiphon.tools.web.pages import Pages
from antiphon.tools.web.search_engines import BRAVE_URL, WebSearch


class SearchSetting(Struct, frozen=True, kw_only=True):
    """The search engine of the settings."""

    kind: SearchKind
    url: str | None
    """None for the usual address of its kind."""
    key: str | None
    clearance: Classification | None
    """What queries may be made of; None for the default."""


class WebSetting(Struct, frozen=True, kw_only=True):
    """What the settings say of the web."""

    rules: WebRules
    fetches: bool = True
    """Whether agents have `fetch_page`."""
    proxy: str | None = None
    search: SearchSetting | None = None


def web_tools(callers: Callers, setting: WebSetting, network: Network, rules: Rules) -> Iterator[SessionTool[Any]]:
    pages = Pages(Fetcher(setting.rules, network, proxy=setting.proxy), setting.rules)
    if setting.fetches:
        yield fetch_page(callers, pages, rules)
    if (search := setting.search) is not None:
        engine = WebSearch(search.kind, search.url or BRAVE_URL, search.key, Fetcher(WebRules(is_open=True), network))
        yield search_web(callers, engine, pages, clearance=search.clearance)
