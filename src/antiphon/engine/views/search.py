"""Searching the messages that a session or a person may read. Contract: search 1, visibility 4, flow 3, 8."""

from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.classification import Integrity
from antiphon.domain.ids import SessionId
from antiphon.domain.keys import SessionKey
from antiphon.domain.message import Role, text_of
from antiphon.domain.session import SessionSummary
from antiphon.domain.snippet import redacted_snippet
from antiphon.domain.words import query_words
from antiphon.engine.access.reach import Actor, Rights, find_reach
from antiphon.engine.audit.trail import Trail
from antiphon.engine.ledger.text_work import size_of, work_on
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.reach import Reach
from antiphon.store import search as index
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Query, reads_much
from antiphon.store.search import FoundMessage
from antiphon.store.sessions import SessionFilter

NEWEST = 2**63 - 1
FIRST_DEPTH = 128
"""How many messages with all words the first read looks at: enough for callers that may see most of them."""
MAX_DEPTH = 1024
"""How many each later read looks at."""


class Hit(Struct, frozen=True, kw_only=True):
    """A message with all words of a query."""

    session_key: SessionKey
    session_id: SessionId
    """The incarnation that holds the message, which may have ended."""
    label: str | None
    """Of the session, as its display name."""
    display_name: str | None
    description: str | None
    """Of the session, if the message belongs to its present incarnation."""
    seq: int
    role: Role
    created_at: datetime
    snippet: str
    integrity: Integrity
    """Of the message."""
    """Redacted first and then cut to at most 300 characters."""


class HitPage(Struct, frozen=True):
    """Messages with all words, newest first."""

    hits: list[Hit]
    next: int | None
    """The place in the index where the next page continues; None if there is no more."""


class NamedSessions(Struct, frozen=True):
    """Sessions whose names contain all words of a query, newest first."""

    sessions: list[SessionSummary]
    has_more: bool


class _Asked(Struct, frozen=True):
    reach: Reach
    expression: str


class _Look(NamedTuple):
    """How far one read of the index looks."""

    before: int
    """Only messages before this place in the index."""
    depth: int
    """How many messages with all words it looks at, at most."""
    limit: int
    """How many of them it returns, at most."""


class Search:
    """Finds messages by their words, and sessions by their names, as far as the actor may read them."""

    def __init__(self, database: Database, rules: Rules, trail: Trail) -> None:
        self._trail = trail
        self._database = database
        self._rules = rules

    async def messages(self, actor: Actor, query: str, *, limit: int, before: int | None = None) -> HitPage:
        """Messages of people and models with all words, below `before`, at most `limit`.

        Raises `Invalid` (`invalid_query`), `Denied` if reading is switched off, and `NotFound` if the calling session
        is gone.
        """
        words = query_words(query)
        asked = await self._database.read(_ask, Rights(actor, self._rules), tuple(words))
        if asked is None:
            return HitPage([], None)
        found: list[FoundMessage] = []
        before = NEWEST if before is None else before
        depth = FIRST_DEPTH
        while before is not None and len(found) <= limit:
            # In parts, so that a search for very common words does not hold up other readers.
            more, before = await self._database.read(_look, asked, _Look(before, depth, limit + 1 - len(found)))
            found += more
            depth = MAX_DEPTH
        page = found[:limit]
        if isinstance(actor, Principal):
            for session in {each.event.session: None for each in page}:
                await self._trail.read(actor, session, [each.event for each in page if each.event.session == session])
        size = size_of(message.event.message for message in page)
        hits = await work_on(size, _hits, page, words)
        return HitPage(hits, page[-1].id if len(found) > limit else None)

    async def sessions(self, principal: Principal, query: str, *, limit: int) -> NamedSessions:
        """Sessions with all words of the query in their names or keys, inactive ones too, at most `limit`."""
        wanted = SessionFilter(search=query, include_inactive=True)
        rights = Rights(principal, self._rules)
        found = await self._database.read(_find_named, rights, wanted, limit + 1)
        return NamedSessions(found[:limit], len(found) > limit)

    async def lag(self) -> int:
        """The number of messages that are not in the index yet."""
        return await self._database.read(index.count_lag)


async def _ask(query: Query, rights: Rights, words: tuple[str, ...]) -> _Asked | None:
    """The query for the index; None without a session to search."""
    reach = await find_reach(query, rights, Act.READ)
    sessions = await index.find_narrow(query, reach)
    if sessions == []:
        return None
    return _Asked(reach, index.expression(words, sessions))


@reads_much
async def _find_named(query: Query, rights: Rights, wanted: SessionFilter, limit: int) -> list[SessionSummary]:
    reach = await find_reach(query, rights, Act.READ)
    return await rows.list_page(query, reach, wanted, limit=limit, after=None)


@reads_much
async def _look(query: Query, asked: _Asked, look: _Look) -> tuple[list[FoundMessage], int | None]:
    """Messages and where to continue, in one snapshot with the sessions that the actor sees."""
    return await index.find_messages(
        query, asked.reach, asked.expression, before=look.before, depth=look.depth, limit=look.limit
    )


def _hits(found: list[FoundMessage], words: list[str]) -> list[Hit]:
    return [_hit(message, words) for message in found]


def _hit(found: FoundMessage, words: list[str]) -> Hit:
    message = found.event.message
    assert message is not None
    return Hit(
        session_key=found.key,
        session_id=found.event.session_id,
        label=found.label,
        display_name=found.display_name,
        description=found.description,
        seq=found.number,
        role=message.role,
        created_at=found.event.created_at,
        snippet=redacted_snippet(text_of(message.content), words),
        integrity=found.event.classification.integrity,
    )
