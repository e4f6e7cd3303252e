"""`sessions_list`: the sessions that the caller sees, newest first. Contract: list 1 to 5."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import accumulate
from typing import Any

from pydantic import Field, field_validator

from antiphon.clock import Clock
from antiphon.domain.classification import OF_INTEGRITY, Integrity
from antiphon.domain.cursors import Cursors
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.domain.keys import SessionKind
from antiphon.engine.access.caller import Caller
from antiphon.engine.ledger.text_work import size_of, work_on
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.sessions import ListCursor, SessionFilter
from antiphon.engine.views.views import ListedSession, Views
from antiphon.tools.bounds import MAX_ANSWER_BYTES, newest_within
from antiphon.tools.session_tool import Arguments, ClassifiedAnswer, SessionTool
from antiphon.wire.encoding import compact_json, milliseconds
from antiphon.wire.sessions import listed_row

DESCRIPTION = (
    "Lists the sessions that this session can see, newest first: key, kind, channel, label, status, model, usage. Use "
    "it to find a session to read or to write to."
)
MAX_LIMIT = 200
MAX_MESSAGES = 20
ENVELOPE_BYTES = 128
"""For the count, the cursor and the brackets of an answer."""
MARK_BYTES = 64
"""For the names of a row's messages and of the mark that some were omitted."""


class ListArguments(Arguments):
    kinds: list[str] | None = Field(None, description="Only these kinds: main, group, cron, hook, node, other.")
    limit: int = Field(50, description="Maximum number of sessions, 1 to 200.")
    active_minutes: int | None = Field(
        None, ge=1, le=10**9, description="Only sessions updated within this many minutes."
    )
    message_limit: int = Field(0, description="How many of each session's newest messages to include, 0 to 20.")
    label: str | None = Field(None, description="Only sessions with exactly this label.")
    agent_id: str | None = Field(None, description="Only sessions of this agent.")
    search: str | None = Field(
        None, min_length=1, max_length=200, description="Only sessions with this text in name, label or key."
    )
    include_inactive: bool = Field(False, description="Include sessions that are hidden from normal lists.")
    cursor: str | None = Field(None, description="nextCursor of the previous answer.")

    @field_validator("kinds")
    @classmethod
    def _known(cls, kinds: list[str] | None) -> list[str] | None:
        known = [kind.value for kind in SessionKind]
        cleaned = None if kinds is None else [kind.strip().lower() for kind in kinds]
        for kind in cleaned or ():
            if kind not in known:
                raise ValueError(f"unknown kind {kind[:40]!r}; valid kinds are: {', '.join(known)}")
        return cleaned


def sessions_list(views: Views, rules: Rules, clock: Clock, cursors: Cursors) -> SessionTool[ListArguments]:
    async def carry_out(caller: Caller, arguments: ListArguments) -> ClassifiedAnswer:
        minutes = arguments.active_minutes
        where = SessionFilter(
            agent_id=None if arguments.agent_id is None else AgentId(arguments.agent_id),
            kinds=None if arguments.kinds is None else frozenset(map(SessionKind, arguments.kinds)),
            label=arguments.label,
            search=arguments.search,
            updated_since=None if minutes is None else clock.now() - timedelta(minutes=minutes),
            include_inactive=arguments.include_inactive,
        )
        about = _about(caller, arguments)
        after = None
        if arguments.cursor is not None:
            updated_at_ms, row = cursors.unseal(about, arguments.cursor)
            after = ListCursor(updated_at_ms, SessionRow(row))
        page = await views.list(
            caller,
            where,
            limit=min(max(arguments.limit, 1), MAX_LIMIT),
            message_limit=min(max(arguments.message_limit, 0), MAX_MESSAGES),
            after=after,
        )
        size = size_of(event.message for entry in page.sessions for event in entry.messages)
        shown = await work_on(size, _rows, page.sessions, rules, arguments.message_limit > 0)
        answer: dict[str, Any] = {"count": len(shown), "sessions": shown}
        if page.next is not None or len(shown) < len(page.sessions):
            last = page.sessions[len(shown) - 1].session
            answer["nextCursor"] = cursors.seal(about, milliseconds(last.updated_at), last.row)
        return ClassifiedAnswer(answer, OF_INTEGRITY[_integrity_of(page.sessions, caller)])

    return SessionTool(
        "sessions_list", DESCRIPTION, ListArguments, carry_out, codes=("invalid_cursor", "act_off", "act_narrowed")
    )


def _integrity_of(listed: Sequence[ListedSession], caller: Caller) -> Integrity:
    """The worst of what the answer shows; the row of the caller itself is no news to it."""
    others = [entry for entry in listed if entry.session.row != caller.session]
    rows = (max(entry.session.integrity, entry.names_worth) for entry in others)
    messages = (event.classification.integrity for entry in listed for event in entry.messages)
    return max((*rows, *messages), default=Integrity.TRUSTED)


def _about(caller: Caller, arguments: ListArguments) -> tuple[str, ...]:
    """The asker and the question, without the amount."""
    asked = arguments.model_dump_json(exclude={"cursor", "limit", "message_limit"})
    return ("sessions_list", str(caller.session), str(caller.principal), asked)


def _rows(listed: Sequence[ListedSession], rules: Rules, with_messages: bool) -> list[dict[str, Any]]:
    """A row for each session; with messages, for as many of the first as an answer has room for, at least one."""
    shown = [_row(entry, rules) for entry in listed]
    return _with_messages(shown, listed) if with_messages else shown


def _with_messages(shown: Sequence[dict[str, Any]], listed: Sequence[ListedSession]) -> list[dict[str, Any]]:
    """The rows with each session's newest messages, as long as there is room; the others say that there was none."""
    sizes = accumulate(len(compact_json(row)) + MARK_BYTES for row in shown)
    left = [room for size in sizes if (room := MAX_ANSWER_BYTES - ENVELOPE_BYTES - size) >= 0] or [0]
    rows, room = list(shown[: len(left)]), left[-1]
    for row, entry in zip(rows, listed, strict=False):
        page = newest_within(entry.messages, room) if room > 0 or not entry.messages else None
        if page is None or (entry.messages and page.dropped == len(entry.messages)):
            room = 0
            row["messagesOmitted"] = True
            continue
        room -= page.size
        row["messages"] = page.messages
        if page.dropped:
            row["messagesOmitted"] = True
    return rows


def _row(entry: ListedSession, rules: Rules) -> dict[str, Any]:
    agent = rules.agents.get(entry.session.agent_id)
    model = agent.model if agent else "unknown"
    row = listed_row(entry.session, default_model=model, names_provider=rules.names_provider)
    if entry.children:
        row["childSessions"] = list(entry.children)
    return row
