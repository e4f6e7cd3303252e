"""`sessions_history`: the transcript of a session that the caller sees. Contract: history 1 to 3."""

from typing import Any

from pydantic import Field

from antiphon.domain.actor import Principal
from antiphon.domain.classification import OF_INTEGRITY, Integrity
from antiphon.domain.cursors import Cursors
from antiphon.domain.ids import SessionRow
from antiphon.domain.targets import Target, WrittenTarget, parse_target
from antiphon.engine.access.caller import Caller
from antiphon.engine.ledger.text_work import size_of, work_on
from antiphon.engine.views.views import Views
from antiphon.tools.bounds import MAX_ANSWER_BYTES, newest_within
from antiphon.tools.session_tool import Arguments, ClassifiedAnswer, SessionTool

DESCRIPTION = (
    "Returns the newest messages of a session that this session may read, oldest first. Secrets are redacted. Use it "
    "to see what was said there."
)
MAX_LIMIT = 1_000
MAX_BYTES = MAX_ANSWER_BYTES - 1024
"""For the messages; the rest of the answer is smaller than that."""
TARGET = "The session's key or session id, or 'main', 'current' or 'parent'."


class HistoryArguments(Arguments):
    aliases = {"session_id": "sessionKey"}

    session_key: str = Field(description=TARGET)
    limit: int = Field(50, description="Maximum number of messages, 1 to 1000.")
    cursor: str | None = Field(None, description="nextCursor of the previous answer, for older messages.")
    include_tools: bool = Field(False, description="Include the results of tools.")


def question(session: SessionRow, principal: Principal, target: Target, *, include_tools: bool) -> tuple[str, ...]:
    """The asker and the question for which a cursor is valid."""
    return ("sessions_history", str(session), str(principal), repr(target), repr(include_tools))


def sessions_history(views: Views, cursors: Cursors) -> SessionTool[HistoryArguments]:
    async def carry_out(caller: Caller, arguments: HistoryArguments) -> ClassifiedAnswer:
        target = parse_target(arguments.session_key, agent_id=caller.agent_id)
        about = question(caller.session, caller.principal, target, include_tools=arguments.include_tools)
        page = await views.history(
            caller,
            WrittenTarget(target, arguments.session_key),
            limit=min(max(arguments.limit, 1), MAX_LIMIT),
            before=None if arguments.cursor is None else cursors.unseal(about, arguments.cursor)[0],
            include_tools=arguments.include_tools,
        )
        size = size_of(event.message for event in page.events)
        shown = await work_on(size, newest_within, page.events, MAX_BYTES)
        is_placeholder = bool(page.events) and shown.dropped == len(page.events)
        has_more = page.has_more or shown.dropped > (1 if is_placeholder else 0)
        answer: dict[str, Any] = {
            "sessionKey": str(page.session.key),
            "messages": shown.messages,
            "hasMore": has_more,
            "truncated": shown.dropped > 0 or shown.was_cut,
            "droppedMessages": shown.dropped > 0,
            "contentTruncated": shown.was_cut,
            "contentRedacted": shown.was_redacted,
            "bytes": shown.size,
        }
        if has_more and shown.messages:
            numbers = [event.seq for event in page.events]
            answer["nextCursor"] = cursors.seal(about, page.seqs[numbers.index(shown.messages[0].seq)])
        integrity = max((event.classification.integrity for event in page.events), default=Integrity.TRUSTED)
        return ClassifiedAnswer(answer, OF_INTEGRITY[integrity])

    return SessionTool(
        "sessions_history",
        DESCRIPTION,
        HistoryArguments,
        carry_out,
        codes=("invalid_key", "not_found", "invalid_cursor", "cursor_pruned"),
    )
