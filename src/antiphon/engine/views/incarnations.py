"""The earlier conversations of a session: its ended incarnations. Contract: sessions 6, gateway 4."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.ids import SessionId
from antiphon.domain.keys import SessionKey
from antiphon.domain.message import text_of
from antiphon.domain.snippet import NEAR, redacted_beginning
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.reach import Rights, find_session
from antiphon.engine.ledger.text_work import work_on
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.store import ended_incarnations as rows
from antiphon.store.database import Database, Query
from antiphon.store.ended_incarnations import EndedIncarnation

NEWEST = 2**63 - 1


class EarlierConversation(Struct, frozen=True, kw_only=True):
    """An ended incarnation, as the reader may see it."""

    id: SessionId
    """Names it in `Sessions.get`, `History` and `Forks`."""
    first_seq: int
    started_at: datetime
    ended_at: datetime
    message_count: int
    """Messages of people and models that the reader may read; those above 1,000 are not counted."""
    first_words: str | None
    """At most 300 characters of the first message that was for the agent, redacted, on one line.

    None if it has no text, was pruned, or is withheld.
    """
    is_withheld: bool
    """Whether the first message does not flow to the reader."""


class EarlierPage(Struct, frozen=True, kw_only=True):
    """Ended incarnations of one session, newest first."""

    session_key: SessionKey
    conversations: Sequence[EarlierConversation]
    next: int | None
    """The next page begins before this `seq`; None if there are no more."""


class _Wanted(NamedTuple):
    before: int
    """Only incarnations that began before this `seq`."""
    limit: int


class Incarnations:
    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def ended(
        self, principal: Principal, target: NamedTarget, *, limit: int, before: int | None = None
    ) -> EarlierPage:
        """The ended incarnations of the named session, newest first; `before` continues a page. Raises `NotFound`."""
        rights, wanted = Rights(principal, self._rules), _Wanted(NEWEST if before is None else before, limit + 1)
        key, found = await self._database.read(_list_ended, rights, target, wanted)
        shown = found[:limit]
        conversations = await work_on(NEAR * len(shown), _conversations, shown)
        following = shown[-1].first_seq if len(found) > limit else None
        return EarlierPage(session_key=key, conversations=conversations, next=following)


async def _list_ended(
    query: Query, rights: Rights, target: NamedTarget, wanted: _Wanted
) -> tuple[SessionKey, list[EndedIncarnation]]:
    found = await find_session(query, rights, Act.READ, target)
    return found.session.key, await rows.list_ended(query, found.grant, before=wanted.before, limit=wanted.limit)


def _conversations(found: Sequence[EndedIncarnation]) -> list[EarlierConversation]:
    return [_conversation(each) for each in found]


def _conversation(ended: EndedIncarnation) -> EarlierConversation:
    first = ended.first_message
    message = None if first is None else first.message
    words = None if message is None else redacted_beginning(text_of(message.content))
    return EarlierConversation(
        id=ended.id,
        first_seq=ended.first_seq,
        started_at=ended.started_at,
        ended_at=ended.ended_at,
        message_count=ended.message_count,
        first_words=words or None,
        is_withheld=ended.is_withheld,
    )
