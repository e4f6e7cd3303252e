"""Lists that many connections follow: of sessions, of approval requests, of runs. Contract: gateway 3.

Connections with the same rights and the same filter share one list, so that each change is read and encoded once.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Protocol, TypeVar, cast

from antiphon.domain.actor import Principal
from antiphon.domain.errors import Denied, NotFound
from antiphon.domain.event import Event, EventType
from antiphon.domain.ids import ApprovalId, RunId, SessionRow
from antiphon.engine.runs.cancel import RunFilter
from antiphon.engine.runs.decisions import ApprovalFilter
from antiphon.engine.services import Services
from antiphon.engine.sessions.sessions import LiveSession, SessionFilter
from antiphon.feed.changes import Change, ChangeReader, Changes
from antiphon.feed.follow import Frame
from antiphon.feed.listed import Listing, ListReader, ListView, VisibleRow
from antiphon.gateway.context import Gateway
from antiphon.gateway.operations.sessions import row_of
from antiphon.gateway.socket.frames import event_frame
from antiphon.gateway.socket.messages import shown_message
from antiphon.wire import approvals as wire_approvals
from antiphon.wire import runs as wire_runs
from antiphon.wire import sessions as wire
from antiphon.wire.encoding import Shape

THINGS_AT_ONCE = 100
"""Approval requests or runs of one session that are read together after a change of it."""


class SessionChanged(Shape, frozen=True, kw_only=True):
    """A row of the list has changed. At most four a second come for each session."""

    session_key: str
    phase: str
    """`message`, `created`, `patched`, `reset`, `run`, or `deleted` for a row that the caller no longer sees."""
    ts: int
    session: wire.SessionShape | None = None
    """The new row; absent for `deleted`."""
    message_id: str | None = None
    message_seq: int | None = None
    """Of the newest message since the last change, for `message`."""


class ApprovalChanged(Shape, frozen=True, kw_only=True):
    """A request for approval was made or decided."""

    approval: wire_approvals.ApprovalShape


class RunChanged(Shape, frozen=True, kw_only=True):
    """A run was queued, has begun or has ended."""

    run: wire_runs.RunShape


class SharedList(ChangeReader, Protocol):
    readers: dict[ListReader, None]


L = TypeVar("L", bound=SharedList)


class SharedLists:
    """The lists that connections follow at present."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._lists: dict[Hashable, SharedList] = {}

    async def join(self, key: Hashable, make: Callable[[], L], reader: ListReader) -> L:
        """Adds the reader to the list with that key, which `make` makes if there is none yet. Raises `Unavailable`."""
        found = self._lists.get(key)
        if found is None:
            found = self._lists[key] = make()
        found.readers[reader] = None
        try:
            await self._changes.add(found)
        except BaseException:
            self.leave(key, reader)
            raise
        if not found.readers:  # it left meanwhile
            self._changes.remove(found)
        return cast("L", found)

    def leave(self, key: Hashable, reader: ListReader) -> None:
        """May be called twice."""
        found = self._lists.get(key)
        if found is None:
            return
        found.readers.pop(reader, None)
        if not found.readers:
            del self._lists[key]
            self._changes.remove(found)


class Things:
    """A list of things that belong to sessions: approval requests or runs."""

    def __init__(
        self,
        ids_of: Callable[[Sequence[Event]], set[str]],
        read: Callable[[SessionRow, Sequence[str]], Awaitable[Mapping[str, Frame]]],
    ) -> None:
        self._ids_of = ids_of
        self._read = read
        self.readers: dict[ListReader, None] = {}

    async def take(self, changes: Sequence[Change]) -> None:
        for change in changes:
            ids = sorted(self._ids_of(change.events))
            for start in range(0, len(ids), THINGS_AT_ONCE):
                await self._take_some(change.session, ids[start : start + THINGS_AT_ONCE])

    async def _take_some(self, session: SessionRow, ids: Sequence[str]) -> None:
        try:
            found = await self._read(session, ids)
        except (Denied, NotFound):
            return
        for frame in found.values():
            for reader in tuple(self.readers):
                reader.take("", (), frame)

    async def look_again(self) -> None:
        """Nothing to do: each change is read with the rights of that moment."""


def approval_ids(events: Sequence[Event]) -> set[str]:
    kinds = (EventType.APPROVAL_REQUESTED, EventType.APPROVAL_RESOLVED)
    return {str(event.data.get("approvalId")) for event in events if event.type in kinds}


def run_ids(events: Sequence[Event]) -> set[str]:
    kinds = (EventType.USER_MESSAGE, EventType.RUN_STARTED, EventType.RUN_FINISHED)
    return {event.run_id for event in events if event.type in kinds and event.run_id is not None}


def list_of_sessions(gateway: Gateway, principal: Principal, where: SessionFilter) -> Listing[LiveSession]:
    services = gateway.services

    async def read(rows: Sequence[SessionRow]) -> Mapping[SessionRow, VisibleRow[LiveSession]]:
        if not rows:
            return {}
        try:
            found = await services.sessions.list_among(principal, where, rows)
        except (Denied, NotFound):
            return {}
        return {
            row: VisibleRow(live.session.key.value, live, None if live.grant is None else live.grant.clearance)
            for row, live in found.items()
        }

    def changed(phase: str, row: VisibleRow[LiveSession], newest: Event | None) -> Frame:
        message = None if newest is None else newest.message
        payload = SessionChanged(
            session_key=row.key,
            phase=phase,
            ts=services.clock.now_ms(),
            session=row_of(gateway, row.row.session, row.row.last_run),
            message_id=None if message is None else message.message_id,
            message_seq=None if newest is None else newest.seq,
        )
        return event_frame("sessions.changed", payload)

    def gone(key: str) -> Frame:
        payload = SessionChanged(session_key=key, phase="deleted", ts=services.clock.now_ms())
        return event_frame("sessions.changed", payload)

    def message(key: str, event: Event) -> Frame:
        return event_frame("session.message", shown_message(key, event, services.names), seq=event.seq)

    return Listing(read, ListView(changed, gone, message))


def list_of_approvals(services: Services, principal: Principal) -> Things:
    async def read(session: SessionRow, ids: Sequence[str]) -> Mapping[str, Frame]:
        where = ApprovalFilter(session=session, ids=tuple(ApprovalId(id) for id in ids))
        found = await services.approvals.list(principal, where, limit=len(ids))
        names = await services.names.read(name for approval in found for name in wire_approvals.named_in(approval))
        await services.names.read_compartments(approval.made_of for approval in found)
        shown = [wire_approvals.approval(approval, names, services.names.compartments) for approval in found]
        return {each.approval_id: event_frame("approvals.changed", ApprovalChanged(approval=each)) for each in shown}

    return Things(approval_ids, read)


def list_of_runs(services: Services, principal: Principal) -> Things:
    async def read(session: SessionRow, ids: Sequence[str]) -> Mapping[str, Frame]:
        where = RunFilter(session=session, ids=tuple(RunId(id) for id in ids))
        found = await services.runs.list(principal, where, limit=len(ids))
        return {run.id: event_frame("runs.changed", RunChanged(run=wire_runs.run(run))) for run in found}

    return Things(run_ids, read)


def key_of(what: str, principal: Principal, where: SessionFilter | None = None) -> Hashable:
    """Equal for lists that show the same: principals are equal even if their clearances differ."""
    return what, principal, principal.clearance, where
