"""Reading transcripts: pages for people and programs, slices for followers. Contract: history 1, 2."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.errors import Conflict
from antiphon.domain.event import Event, is_bad_end
from antiphon.domain.ids import SessionId, SessionRow
from antiphon.domain.session import Session
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.names import PersonNames
from antiphon.engine.access.reach import Found, Rights, find_session
from antiphon.engine.audit.trail import Trail
from antiphon.engine.rules import Rules
from antiphon.feed.follow import FRAME_BYTES, PAGE_EVENTS, LogSlice
from antiphon.policy.acts import Act
from antiphon.policy.reach import Grant
from antiphon.policy.system import system_grant
from antiphon.store import events as log
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Query
from antiphon.store.events import NumberedEvents


class HistoryPageRequest(Struct, frozen=True):
    """The newest `limit` messages below `before`."""

    limit: int
    before: int | None
    """None for the end of the log."""
    include_tools: bool
    """Whether the results of tools are among them."""


class HistoryPage(Struct, frozen=True, kw_only=True):
    """The newest requested messages of one incarnation, in ascending order."""

    grant: Grant
    """Permits following the session."""
    session: Session
    """As the incarnation that was read."""
    events: list[Event]
    endings: Sequence[Event] = ()
    """The ends of runs after the oldest of these messages, save for those that went well; in ascending order."""
    has_more: bool
    """Whether there are older messages."""
    last_seq: int
    """The newest `seq` of the log, or of an ended incarnation, when the page was read; follow from here."""
    seqs: Sequence[int] = ()
    """For a session, which knows events by other numbers: their places in the log."""


class History:
    def __init__(self, database: Database, rules: Rules, names: PersonNames, trail: Trail) -> None:
        self._trail = trail
        self._database = database
        self._rules = rules
        self._names = names

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
        rights, wanted = Rights(principal, self._rules), HistoryPageRequest(limit, before, include_tools)
        page = await self._database.read(_read_page, rights, target, wanted)
        await self._trail.read(principal, page.session.row, [*page.events, *page.endings])
        return page

    async def events(self, principal: Principal, target: NamedTarget, after: int = 0) -> AsyncIterator[Event]:
        """All events above `after` of the named incarnation, ascending, up to the present end of the log.

        Raises `NotFound`, also between two pages if the session was deleted or became hidden.
        """
        rights, end = Rights(principal, self._rules), _End(None, after)
        while True:
            page = await self._database.read(_read_events, rights, target, end)
            if page.events:
                await self._trail.read(principal, page.events[0].session, page.events)
            for event in page.events:
                yield event
            if len(page.events) < PAGE_EVENTS:
                return
            end = _End(page.incarnation, page.events[-1].seq)

    async def read_logs(self, cursors: Mapping[SessionRow, int]) -> Mapping[SessionRow, LogSlice]:
        """New events of each session after its cursor; for the hub. The names of their compartments are then known."""
        slices = await self._database.read(_read_slices, dict(cursors))
        await self._names.read_compartments(event.classification for slice in slices.values() for event in slice.events)
        return slices

    async def read_heads(self, above: SessionRow, limit: int) -> Mapping[SessionRow, int]:
        """The last `seq` of the logs of sessions after that row, in order; for the feed of changes."""
        return await self._database.read(_read_heads, above, limit)


async def _read_heads(query: Query, above: SessionRow, limit: int) -> Mapping[SessionRow, int]:
    return await rows.list_last_seqs(query, above=above, limit=limit)


async def _read_page(query: Query, rights: Rights, target: NamedTarget, wanted: HistoryPageRequest) -> HistoryPage:
    found = await find_session(query, rights, Act.READ, target)
    page = await read_page(query, found, wanted)
    ends = await log.read_ends(
        query,
        found.grant,
        found.incarnation.id,
        from_seq=page.events[0].seq if page.has_more else found.incarnation.first_seq,
        before=page.last_seq + 1 if wanted.before is None else wanted.before,
        limit=wanted.limit,
    )
    endings = [end for end in reversed(ends) if is_bad_end(end)]
    return replace(page, endings=endings) if endings else page


async def read_page(
    query: Query, found: Found, wanted: HistoryPageRequest, *, is_for_session: bool = False
) -> HistoryPage:
    """The wanted messages of the incarnation that was found; for a session, numbered as it may know them."""
    session, incarnation = found.as_named, found.incarnation
    if wanted.before is not None and wanted.before < session.first_seq:
        raise Conflict(
            "Cursor points to a part of the log that was pruned. Start without a cursor.",
            code="cursor_pruned",
        )
    end = session.last_seq + 1
    read = log.read_numbered_before if is_for_session else log.read_messages_before
    page = await read(
        query,
        found.grant,
        incarnation.id,
        from_seq=incarnation.first_seq,
        before=end if wanted.before is None else min(wanted.before, end),
        limit=wanted.limit + 1,
        include_tools=wanted.include_tools,
    )
    events, seqs = page if isinstance(page, NumberedEvents) else (page, [])
    return HistoryPage(
        grant=found.grant,
        session=session,
        events=events[: wanted.limit][::-1],
        has_more=len(events) > wanted.limit,
        last_seq=session.last_seq,
        seqs=seqs[: wanted.limit][::-1],
    )


class _End(NamedTuple):
    """Where the last page of events ended."""

    incarnation: SessionId | None
    """None before the first page: then the target names it."""
    seq: int


class _EventPage(NamedTuple):
    incarnation: SessionId
    events: list[Event]


async def _read_events(query: Query, rights: Rights, target: NamedTarget, end: _End) -> _EventPage:
    """The events after that end."""
    found = await find_session(query, rights, Act.READ, target)
    incarnation = end.incarnation or found.incarnation.id
    return _EventPage(
        incarnation,
        await log.read_incarnation_after(query, found.grant, incarnation, end.seq, limit=PAGE_EVENTS),
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
