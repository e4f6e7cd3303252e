"""Search engines as their vendors document them: SearXNG's `/search?format=json`, Brave's `/res/v1/web/search`."""

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.tools.web.page_server import PageServer, answer

SEARXNG = "/search"
BRAVE = "/res/v1/web/search"


def searxng(*results: Any, **more: Any) -> bytes:
    """With what else stands in its answers."""
    whole = {
        "query": "q",
        "number_of_results": 0,
        "results": list(results),
        "answers": [],
        "corrections": [],
        "infoboxes": [],
        "suggestions": ["other words"],
        "unresponsive_engines": [["google", "timeout"]],
        **more,
    }
    return answer(json.dumps(whole).encode(), kind="application/json")


def searxng_result(title: str, url: str, content: str) -> dict[str, Any]:
    return {
        "title": title,
        "url": url,
        "content": content,
        "engine": "duckduckgo",
        "parsed_url": [*urlsplit(url)][:5],
        "template": "default.html",
        "engines": ["duckduckgo"],
        "positions": [1],
        "score": 1.0,
        "category": "general",
        "publishedDate": None,
    }


def brave(*results: Any) -> bytes:
    whole = {
        "type": "search",
        "query": {"original": "q", "more_results_available": True},
        "mixed": {"type": "mixed", "main": [{"type": "web", "index": 0, "all": False}]},
        "web": {"type": "search", "results": list(results), "family_friendly": True},
    }
    return answer(json.dumps(whole).encode(), kind="application/json")


def brave_result(title: str, url: str, description: str) -> dict[str, Any]:
    return {
        "title": title,
        "url": url,
        "is_source_local": False,
        "is_source_both": False,
        "description": description,
        "profile": {"name": "Example", "url": url},
        "language": "en",
        "family_friendly": True,
        "type": "search_result",
        "meta_url": {"scheme": "https", "netloc": urlsplit(url).netloc},
    }


def asked_of(server: PageServer) -> dict[str, list[str]]:
    """The parameters of the only request."""
    (head,) = server.asked
    return parse_qs(urlsplit(head.split(b" ")[1].decode()).query)
