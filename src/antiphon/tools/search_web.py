"""`search_web`: asks a search engine, and reads the first pages that it finds. Contract: flow 7, 10, shipped tools."""

from typing import Any

from pydantic import Field, field_validator

from antiphon.domain.agent import Effect
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import AntiphonError
from antiphon.domain.page_address import parse_page_address
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.callers import Callers
from antiphon.policy.shipped_tools import SEARCH_WEB
from antiphon.tools.fetch_page import has_read_others
from antiphon.tools.session_tool import Arguments, ClassifiedAnswer, SessionTool
from antiphon.tools.web.pages import MAX_CHARACTERS, Pages
from antiphon.tools.web.search_engines import FoundPage, WebSearch
from antiphon.wire.errors import tool_status_of

MAX_READ = 3
MAX_QUERY = 400
DESCRIPTION = (
    "Searches the web and returns titles, addresses and snippets, with the texts of the first pages if `read` says how "
    "many. Read what you need in the same call: after it, a person may have to approve each further one."
)


class WebSearchArguments(Arguments):
    routes = ()
    query: str = Field(min_length=1, max_length=MAX_QUERY, description="What to search for.")
    read: int = Field(0, ge=0, le=MAX_READ, description="How many of the first pages to read as well, 0 to 3.")

    @field_validator("query")
    @classmethod
    def _says_something(cls, query: str) -> str:
        if not query.strip():
            raise ValueError("must say what to search for")
        return query


def search_web(
    callers: Callers, engine: WebSearch, pages: Pages, *, clearance: Classification | None = None
) -> SessionTool[WebSearchArguments]:
    """`clearance` is what queries may be made of; public data unless set."""

    async def carry_out(caller: Caller, arguments: WebSearchArguments) -> ClassifiedAnswer:
        stays = await has_read_others(callers, caller)
        try:
            found = await engine.search(arguments.query.strip())
        except AntiphonError as error:  # its words are this program's own
            failure = {"status": tool_status_of(error), "code": error.code, "error": error.message}
            return ClassifiedAnswer(failure, PUBLIC)
        rows = [_row(each) for each in found]
        chosen = rows[: arguments.read]
        if chosen:
            addresses = [parse_page_address(row["url"]) for row in chosen]
            read = await pages.read(addresses, part=1, most=MAX_CHARACTERS // len(chosen), stays=stays)
            for row, page in zip(chosen, read, strict=True):
                row["page"] = {name: value for name, value in page.shown.items() if name != "url"}
        return ClassifiedAnswer({"status": "ok", "count": len(rows), "results": rows}, PUBLIC.distrusted())

    found = SessionTool(
        SEARCH_WEB,
        DESCRIPTION,
        WebSearchArguments,
        carry_out,
        codes=("search_failed", "search_limited"),
        effects=frozenset({Effect.READS, Effect.LEAVES}),
        is_idempotent=False,  # a search costs, and tells the engine something
    )
    found.classification = PUBLIC.distrusted()
    found.clearance = clearance
    return found


def _row(found: FoundPage) -> dict[str, Any]:
    return {"title": found.title, "url": found.url, "snippet": found.snippet}
