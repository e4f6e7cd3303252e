"""Reading transcripts: pages for people and programs, slices for followers. Contract: history 1, 2."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from antiphon.domain.actor import Principal
from antiphon.domain.errors import Conflict
from antiphon.domain.event import Event
from antiphon.domain.ids import SessionId, SessionRow
from antiphon.domain.session import Session
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.reach import Found, find_session
from antiphon.engine.refusal import Refusal, accepted
from antiphon.engine.rules import Rules
from antiphon.feed.follow import FRAME_BYTES, PAGE_EVENTS, LogSlice
from antiphon.policy.acts import Act
from antiphon.policy.reach import Grant
from antiphon.policy.system import system_grant
from antiphon.store import events as log
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Query


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """The newest requested messages of one incarnation, in ascending order."""

    grant: Grant
    """Permits following the session."""
    session: Session
    """As the incarnation that was read."""
    events: list[Event]
    has_more: bool
    """Whether there are older messages."""
    last_seq: int
    """The newest `seq` of the log, or of an ended incarnation, when the page was read; follow from here."""


class History:
    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def page(
        self,
        principal: Principal,
        target: NamedTarget,
        *,
        limit: int,
        before: int | None = None,
        include_tools: bool = False,
    ) -> HistoryPage:
        """The newest `limit` messages below `before`. Raises `NotFound`, `Conflict` for a pruned cursor."""
        read = self._database.read
        return accepted(await read(_read_page, principal, self._rules, target, limit, before, include_tools))

    async def events(self, principal: Principal, target: NamedTarget, after: int = 0) -> AsyncIterator[Event]:
        """All events above `after` of the named incarnation, ascending, up to the present end of the log.

        Raises `NotFound`, also between two pages if the session was deleted or became hidden.
        """
        incarnation: SessionId | None = None
        while True:
            page = accepted(await self._database.read(_read_events, principal, self._rules, target, incarnation, after))
            incarnation = page.incarnation
            for event in page.events:
                yield event
            if len(page.events) < PAGE_EVENTS:
                return
            after = page.events[-1].seq

    async def read_logs(self, cursors: Mapping[SessionRow, int]) -> Mapping[SessionRow, LogSlice]:
        """New events of each session after its cursor; for the hub."""
        return await self._database.read(_read_slices, dict(cursors))


async def _read_page(
    query: Query,
    principal: Principal,
    rules: Rules,
    target: NamedTarget,
    limit: int,
    before: int | None,
    include_tools: bool,
) -> HistoryPage | Refusal:
    found = await find_session(query, principal, Act.READ, target, rules)
    if isinstance(found, Refusal):
        return found
    return await read_page(query, found, limit=limit, before=before, include_tools=include_tools)


async def read_page(
    query: Query, found: Found, *, limit: int, before: int | None, include_tools: bool
) -> HistoryPage | Refusal:
    """The newest `limit` messages below `before` of the incarnation that was found."""
    session, incarnation = found.as_named, found.incarnation
    if before is not None and before < session.first_seq:
        return Refusal(
            Conflict(
                "Cursor lies in a part of the log that was pruned. Begin without a cursor.",
                code="cursor_pruned",
            )
        )
    end = session.last_seq + 1
    events = await log.read_messages_before(
        query,
        found.grant,
        incarnation.id,
        from_seq=incarnation.first_seq,
        before=end if before is None else min(before, end),
        limit=limit + 1,
        include_tools=include_tools,
    )
    return HistoryPage(
        grant=found.grant,
        session=session,
        events=events[:limit][::-1],
        has_more=len(events) > limit,
        last_seq=session.last_seq,
    )


class _EventPage(NamedTuple):
    incarnation: SessionId
    events: list[Event]


async def _read_events(
    query: Query, principal: Principal, rules: Rules, target: NamedTarget, incarnation: SessionId | None, after: int
) -> _EventPage | Refusal:
    """A page of the given incarnation; of the one that the target names if none is given."""
    found = await find_session(query, principal, Act.READ, target, rules)
    if isinstance(found, Refusal):
        return found
    incarnation = incarnation or found.incarnation.id
    return _EventPage(
        incarnation, await log.read_incarnation_after(query, found.grant, incarnation, after, limit=PAGE_EVENTS)
    )


async def _read_slices(query: Query, cursors: Mapping[SessionRow, int]) -> Mapping[SessionRow, LogSlice]:
    slices: dict[SessionRow, LogSlice] = {}
    for session, after in cursors.items():
        if bounds := await rows.find_bounds(query, session):
            found = await log.read_stretch(
                query, system_grant(session), after, limit=PAGE_EVENTS, max_bytes=FRAME_BYTES
            )
            slices[session] = LogSlice(bounds.first_seq, bounds.last_seq, tuple(found.events), found.size)
    return slices
