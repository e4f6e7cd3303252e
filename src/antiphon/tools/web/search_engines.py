"""Asks a search engine: SearXNG, or the Brave Search API. Its key goes to its address alone."""

import json
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote

from msgspec import Struct

from antiphon.domain.errors import AntiphonError, Invalid, Limited, Unavailable
from antiphon.domain.page_address import PageAddress, parse_page_address
from antiphon.domain.search_kind import SearchKind
from antiphon.domain.text import flat
from antiphon.incoming import holds_more_than
from antiphon.tools.web.fetching import Fetcher, FetchOptions, StatusFailure
from antiphon.tools.web.page_text import without_unseen

MAX_FOUND = 10
MAX_TITLE = 200
MAX_SNIPPET = 400
MAX_VALUES = 50_000
BRAVE_URL = "https://api.search.brave.com"
"""Where Brave answers unless the settings name another place."""


class FoundPage(Struct, frozen=True):
    title: str
    url: str
    snippet: str


class WebSearch:
    """A search engine of one kind, at one address."""

    def __init__(self, kind: SearchKind, url: str, key: str | None, fetcher: Fetcher) -> None:
        self._kind = kind
        self._url = url.rstrip("/")
        self._key = key
        self._fetcher = fetcher

    async def search(self, query: str) -> list[FoundPage]:
        """At most `MAX_FOUND`, best first. Raises `Unavailable` (`search_failed`) and `Limited` (`search_limited`)."""
        headers = [("Accept", "application/json")]
        match self._kind:
            case SearchKind.SEARXNG:
                path = f"/search?q={quote(query, safe='')}&format=json"
            case SearchKind.BRAVE:
                path = f"/res/v1/web/search?q={quote(query, safe='')}&count={MAX_FOUND}&text_decorations=false"
                headers.append(("X-Subscription-Token", self._key or ""))
        try:
            request = FetchOptions(headers=headers, redirects=0)  # the key goes to no other address
            answered = await self._fetcher.fetch(engine_address(self._url + path), request)
        except AntiphonError as error:
            raise self._failure(error) from error
        return self._read(answered.body)

    def _failure(self, error: AntiphonError) -> AntiphonError:
        """What went wrong, without the query: it may hold what people said."""
        status = error.status if isinstance(error, StatusFailure) else None
        if status == 429:
            return Limited("Search engine wants fewer requests. Try again later.", code="search_limited")
        match status, self._kind:
            case None, _:
                said = _PLAIN.get(error.code, "it did not answer as it should")
            case 403, SearchKind.SEARXNG:
                said = "it refuses JSON (403); an owner must add json to search.formats in its settings.yml"
            case ((401 | 403 | 422), SearchKind.BRAVE):
                said = f"it refuses the key ({status}); an owner must check tools.search_web.key_env"
            case _:
                said = f"it answered {status}"
        said = f"Search engine failed: {said}. Do without a search, or tell your user."
        return Unavailable(said, code="search_failed")

    def _read(self, body: bytes) -> list[FoundPage]:
        try:
            if holds_more_than(MAX_VALUES, body):
                raise ValueError("more values than an answer has")
            answer = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise _garbled() from error
        rows = _at(answer, "results") if self._kind is SearchKind.SEARXNG else _at(_at(answer, "web"), "results")
        if rows is None and self._kind is SearchKind.BRAVE and isinstance(answer, dict):
            rows = []  # nothing was found
        if not isinstance(rows, list):
            raise _garbled()
        text = "content" if self._kind is SearchKind.SEARXNG else "description"
        found = (_found(row, text) for row in cast(list[object], rows))
        return [each for each in found if each is not None][:MAX_FOUND]


_PLAIN = {
    "page_unreachable": "it cannot be reached; an owner can check tools.search_web.url",
    "page_timeout": "it took too long",
    "page_too_large": "its answer is too long",
    "page_refused": "its address may not be reached; an owner can check tools.search_web.url",
}


def engine_address(url: str) -> PageAddress:
    """Of what an owner has written, so that any name and port may stand in it. Raises `Invalid`."""
    return parse_page_address(url)


def _found(row: object, text: str) -> FoundPage | None:
    """None for a row without an address that can be fetched."""
    url, title, snippet = _at(row, "url"), _at(row, "title"), _at(row, text)
    if not isinstance(url, str):
        return None
    try:
        address = parse_page_address(url)
    except Invalid:
        return None
    return FoundPage(_short(title, MAX_TITLE), address.url, _short(snippet, MAX_SNIPPET))


def _short(text: object, most: int) -> str:
    if not isinstance(text, str):
        return ""
    line = flat(without_unseen(text[: 8 * most]))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _at(value: object, name: str) -> object:
    return cast(Mapping[str, Any], value).get(name) if isinstance(value, dict) else None


def _garbled() -> Unavailable:
    return Unavailable(
        "Search engine failed: its answer is no JSON of the kind that is set. An owner can check tools.search_web.kind "
        "and url.",
        code="search_failed",
    )
