"""Searching the messages that a session or a person may read. Contract: search 1, visibility 4, flow 3, 8."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from antiphon.domain.keys import SessionKey
from antiphon.domain.message import Role, role_of, text_of
from antiphon.domain.snippet import redacted_snippet
from antiphon.domain.words import query_words
from antiphon.engine.access.reach import Actor, Rights, find_reach
from antiphon.engine.ledger.text_work import size_of, work_on
from antiphon.engine.refusal import Refusal, accepted
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.reach import Reach
from antiphon.store import search as index
from antiphon.store.database import Database, Query
from antiphon.store.search import FoundMessage

MAX_LIMIT = 25
NEWEST = 2**63 - 1
FIRST_DEPTH = 256
MAX_DEPTH = 1024
"""How many messages with all words one read looks at, at most; each read goes deeper than the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A message with all words of a query."""

    session_key: SessionKey
    seq: int
    role: Role
    created_at: datetime
    snippet: str
    """Redacted first and then cut to at most 300 characters."""


@dataclass(frozen=True, slots=True)
class _Asked:
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
    """Finds messages by their words, as far as the actor may see them."""

    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def search(self, actor: Actor, query: str, *, limit: int = 10) -> list[Hit]:
        """Messages of people and models with all words, newest first, at most `limit` (1 to 25).

        Raises `Invalid` (`invalid_query`), `Denied` if reading is switched off, and `NotFound` if the calling session
        is gone.
        """
        words = query_words(query)
        limit = min(max(limit, 1), MAX_LIMIT)
        asked = accepted(await self._database.read(_ask, Rights(actor, self._rules), tuple(words)))
        if asked is None:
            return []
        found: list[FoundMessage] = []
        before: int | None = NEWEST
        depth = FIRST_DEPTH
        while before is not None and len(found) < limit:
            # In parts, so that a search for very common words does not hold up other readers.
            more, before = await self._database.read(_look, asked, _Look(before, depth, limit - len(found)))
            found += more
            depth = min(4 * depth, MAX_DEPTH)
        size = size_of(message.event.message for message in found)
        return await work_on(size, _hits, found, words)

    async def lag(self) -> int:
        """The number of messages that are not in the index yet."""
        return await self._database.read(index.count_lag)


async def _ask(query: Query, rights: Rights, words: tuple[str, ...]) -> _Asked | Refusal | None:
    """The query for the index; None without a session to search."""
    reach = await find_reach(query, rights, Act.READ)
    if isinstance(reach, Refusal):
        return reach
    sessions = await index.find_narrow(query, reach)
    if sessions == []:
        return None
    return _Asked(reach, index.expression(words, sessions))


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
        seq=found.event.seq,
        role=role_of(message),
        created_at=found.event.created_at,
        snippet=redacted_snippet(text_of(message.content), words),
    )
