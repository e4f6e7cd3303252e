"""`sessions_search`: messages with all words of a query, in sessions that the caller sees. Contract: search 1."""

from typing import Any

from pydantic import Field

from antiphon.domain.classification import OF_INTEGRITY, Integrity
from antiphon.engine.access.caller import Caller
from antiphon.engine.views.search import Search
from antiphon.tools.session_tool import Arguments, ClassifiedAnswer, SessionTool
from antiphon.wire.encoding import milliseconds

DESCRIPTION = (
    "Finds messages that contain all words of the query, in the sessions that this session may read, newest first. "
    "It matches whole words and has no operators. To see the messages around a result, call sessions_history."
)


MAX_LIMIT = 25


class SearchArguments(Arguments):
    query: str = Field(description="One or more words; a message must contain them all, in any order.")
    limit: int = Field(10, description="Maximum number of results, 1 to 25.")


def sessions_search(search: Search) -> SessionTool[SearchArguments]:
    async def carry_out(caller: Caller, arguments: SearchArguments) -> ClassifiedAnswer:
        limit = min(max(arguments.limit, 1), MAX_LIMIT)
        hits = (await search.messages(caller, arguments.query, limit=limit)).hits
        integrity = max((hit.integrity for hit in hits), default=Integrity.TRUSTED)
        answer: dict[str, Any] = {
            "count": len(hits),
            "results": [
                {
                    "sessionKey": str(hit.session_key),
                    "seq": hit.seq,
                    "role": hit.role.value,
                    "createdAt": milliseconds(hit.created_at),
                    "snippet": hit.snippet,
                }
                for hit in hits
            ],
        }
        return ClassifiedAnswer(answer, OF_INTEGRITY[integrity])

    return SessionTool("sessions_search", DESCRIPTION, SearchArguments, carry_out, codes=("invalid_query",))
