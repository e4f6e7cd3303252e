"""What one connection subscribed to. Contract: gateway 2, 3."""

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from math import inf
from typing import Annotated, Protocol, TypeVar

from anyio.abc import TaskGroup
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from antiphon.domain.errors import Limited, Unavailable
from antiphon.engine.access.reach import Found
from antiphon.engine.sessions.sessions import LiveSession
from antiphon.feed.follow import Frame, HubClosed, LogLost, Permit, Reader, ReaderEnded, View
from antiphon.feed.listed import ListedMessage, Listing
from antiphon.gateway.context import Gateway
from antiphon.gateway.operations.approvals import ListApprovals, list_approvals
from antiphon.gateway.operations.following import After, history_of, is_in_log, permit_for, view_of
from antiphon.gateway.operations.operation import OperationRequest, Params
from antiphon.gateway.operations.runs import ListRuns, list_runs
from antiphon.gateway.operations.sessions import Limit, ListSessions, NamedSession, filter_of, page_of
from antiphon.gateway.socket.frames import event_frame
from antiphon.gateway.socket.lists import (
    SharedList,
    SharedLists,
    Things,
    key_of,
    list_of_approvals,
    list_of_runs,
    list_of_sessions,
)
from antiphon.gateway.socket.messages import SessionReset, messages_view, without
from antiphon.gateway.socket_connection import TOO_SLOW
from antiphon.wire import approvals as wire_approvals
from antiphon.wire import messages as wire
from antiphon.wire import runs as wire_runs
from antiphon.wire import sessions as wire_sessions
from antiphon.wire.encoding import Shape, compact_json

MAX_SUBSCRIPTIONS = 256
"""Sessions whose messages one connection follows."""
MAX_WAITING_BYTES = 1024 * 1024
"""Changes that wait for a client to read them."""
MAX_LISTED = 512
"""Messages of one session that are remembered because a list brought them: the newest."""
MAX_LISTS = 32
"""Lists of sessions that one connection follows, each with another filter."""
MAX_MESSAGES = 1000


L = TypeVar("L", bound=SharedList)
T = TypeVar("T")


class Wire(Protocol):
    """Writes whole frames to the connection, in order."""

    @property
    def is_writable(self) -> bool: ...

    def write(self, frames: bytes) -> None: ...

    async def wait_writable(self) -> None: ...

    def end(self, code: int, reason: str) -> None: ...


class SubscribeMessages(NamedSession, frozen=True, kw_only=True):
    after: After | None = None
    deltas: bool = False
    """Whether the pieces of replies come too, as `session.delta`."""
    include_tools: bool = False
    limit: Annotated[int, Meta(ge=0, le=MAX_MESSAGES)] = 0
    """How many of the newest messages come with the answer; with `after`, none unless the log does not hold it."""


class FollowApprovals(Params, frozen=True, kw_only=True):
    """Without the filters of `approvals.list`: what comes later is not filtered."""

    limit: Limit = 50
    """How many of the newest requests come with the answer."""


class FollowRuns(Params, frozen=True, kw_only=True):
    """Without the filters of `runs.list`: what comes later is not filtered."""

    limit: Limit = 50
    """How many of the newest runs come with the answer."""


class SubscribedMessages(Shape, frozen=True, kw_only=True):
    """From now on, everything after `seq` comes, exactly once."""

    subscribed: bool
    key: str
    """The session's key, however it was named; the id of an ended incarnation."""
    seq: int
    reset: str | None = None
    """Why the log does not hold `after`: `pruned` or `ahead`. Begin anew, with this `seq`."""
    history: wire.HistoryShape | None = None


class Unsubscribed(Shape, frozen=True, kw_only=True):
    subscribed: bool
    """Always false."""
    key: str | None = None


class SubscribedSessions(Shape, frozen=True, kw_only=True):
    """The rows at present, newest first; from now on their changes come, and those of every other row of the list."""

    subscribed: bool
    count: int
    sessions: Sequence[wire_sessions.SessionShape]
    next_cursor: str | None = None
    """For `sessions.list`: the rest of a long list."""


class SubscribedApprovals(Shape, frozen=True, kw_only=True):
    """The requests at present; from now on every new one and every decision comes."""

    subscribed: bool
    count: int
    approvals: Sequence[wire_approvals.ApprovalShape]


class SubscribedRuns(Shape, frozen=True, kw_only=True):
    """The newest runs; from now on every run that is queued, begins or ends comes."""

    subscribed: bool
    count: int
    runs: Sequence[wire_runs.RunShape]


Start = Callable[[], None]
"""Called once the answer to the subscribing request is written."""


class Subscriptions:
    """The subscriptions of one connection. `tasks` are cancelled when the connection is lost."""

    def __init__(self, gateway: Gateway, lists: SharedLists, wire: Wire, tasks: TaskGroup) -> None:
        self._gateway = gateway
        self._hub = gateway.services.hub
        self._lists = lists
        self._wire = wire
        self._tasks = tasks
        self._followed: dict[str, _Follower] = {}
        self._beginning: Counter[str] = Counter()
        """How many subscriptions to each session were asked for and have not begun."""
        self._unfollowed: dict[str, _Brought] = {}
        """What was brought of sessions that are followed no more, the last 256: lists report it a little later."""
        self._listed: dict[str, list[int]] = {}
        """The newest messages that lists brought, by `seq`, of the last 256 sessions."""
        self._joined: dict[Hashable, _ListFollower] = {}
        self._waiting: deque[Frame] = deque()
        """Changes of lists that wait until the client reads."""
        self._waiting_bytes = 0
        self._is_closed = False

    async def follow(self, request: OperationRequest, params: SubscribeMessages) -> tuple[SubscribedMessages, Start]:
        """Follows the messages of a session, exactly once after the answer's `seq`. Raises `NotFound`, `Limited`."""
        found = await request.services.sessions.get(request.principal, request.target(params.key))
        key = found.as_named.id if found.is_ended else found.session.key.value
        self._reserve(key)
        try:
            answer, follower = await self._read(request, params, found, key)
        except BaseException:
            self._release(key)
            raise
        return answer, lambda: self._start(follower)

    async def _read(
        self, request: OperationRequest, params: SubscribeMessages, found: Found, key: str
    ) -> tuple[SubscribedMessages, "_Follower"]:
        """The answer to a subscribing request, and who follows from there."""
        services, target, session = request.services, request.target(params.key), found.as_named
        is_resumed = params.after is not None and is_in_log(session, params.after)
        seq, history = session.last_seq, None
        if is_resumed:
            assert params.after is not None
            seq = params.after
        elif params.limit:
            page = await services.history.page(
                request.principal, target, limit=params.limit, include_tools=params.include_tools
            )
            await services.names.read_compartments(event.classification for event in page.events)
            about = ("GET /sessions/{key}/history", str(request.principal), repr(target), repr(params.include_tools))
            history = history_of(page, services.names, lambda before: services.cursors.seal(about, before))
            seq = page.last_seq
        await services.names.refresh()
        view = messages_view(services.names, key, has_deltas=params.deltas, include_tools=params.include_tools)
        view = view_of(view, session.id, is_ended=found.is_ended)
        span = _Brought(after=seq, has_results=params.include_tools)
        follower = _Follower(key, permit_for(request, target, found.grant), span, view)
        reset = None
        if params.after is not None and not is_resumed:
            reset = "ahead" if params.after > session.last_seq else "pruned"
        answer = SubscribedMessages(subscribed=True, key=key, seq=seq, reset=reset, history=history)
        return answer, follower

    def _reserve(self, key: str) -> None:
        """Counts a subscription while it begins: others begin meanwhile. Raises `Limited`."""
        sessions = self._followed.keys() | self._beginning.keys()
        if key not in sessions and len(sessions) >= MAX_SUBSCRIPTIONS:
            raise _too_many()
        self._beginning[key] += 1

    def _release(self, key: str) -> None:
        self._beginning[key] -= 1
        if not self._beginning[key]:
            del self._beginning[key]

    async def unfollow(self, request: OperationRequest, params: NamedSession) -> Unsubscribed:
        """Ends following the messages of a session, whether or not it was followed. Raises `NotFound`."""
        found = await request.services.sessions.get(request.principal, request.target(params.key))
        key = found.as_named.id if found.is_ended else found.session.key.value
        self._stop(key)
        return Unsubscribed(subscribed=False, key=key)

    async def follow_sessions(self, request: OperationRequest, params: ListSessions) -> tuple[Raw, Start]:
        """Follows a list of sessions; the answer is a `SubscribedSessions`, encoded. Raises `Denied`, `Limited`."""
        where = filter_of(request, params)

        async def answer(listing: Listing[LiveSession]) -> Raw:
            async def read() -> Frame:
                page, shown = await page_of(request, params)
                listing.note_shown({session.row: session.key.value for session in page.sessions})
                return compact_json(
                    SubscribedSessions(
                        subscribed=True, count=shown.count, sessions=shown.sessions, next_cursor=shown.next_cursor
                    )
                )

            return Raw(await listing.snapshot((params.limit, params.cursor, request.rights_changed), read))

        key = key_of("sessions", request.principal, where)
        return await self._begin(
            "sessions", key, lambda: list_of_sessions(self._gateway, request.principal, where), answer
        )

    async def follow_approvals(
        self, request: OperationRequest, params: FollowApprovals
    ) -> tuple[SubscribedApprovals, Start]:
        """Follows all requests for approval that the caller may decide. Raises `Denied`, `Limited`."""

        async def answer(_: Things) -> SubscribedApprovals:
            shown = await list_approvals.handle(request, ListApprovals(limit=params.limit))
            assert isinstance(shown, wire_approvals.ApprovalList)
            return SubscribedApprovals(subscribed=True, count=shown.count, approvals=shown.approvals)

        key = key_of("approvals", request.principal)
        return await self._begin(
            "approvals", key, lambda: list_of_approvals(self._gateway.services, request.principal), answer
        )

    async def follow_runs(self, request: OperationRequest, params: FollowRuns) -> tuple[SubscribedRuns, Start]:
        """Follows all runs that the caller may list. Raises `Denied`, `Limited`."""

        async def answer(_: Things) -> SubscribedRuns:
            shown = await list_runs.handle(request, ListRuns(limit=params.limit))
            assert isinstance(shown, wire_runs.RunList)
            return SubscribedRuns(subscribed=True, count=shown.count, runs=shown.runs)

        key = key_of("runs", request.principal)
        return await self._begin("runs", key, lambda: list_of_runs(self._gateway.services, request.principal), answer)

    async def _begin(
        self, what: str, key: Hashable, make: Callable[[], L], answer: Callable[[L], Awaitable[T]]
    ) -> tuple[T, Start]:
        """Joins the list first, and then reads what the answer shows, so that no change is missed in between."""
        follower = _ListFollower(what, self)
        joined = await self._join(key, make, follower)
        try:
            return await answer(joined), follower.start
        except BaseException:
            self._leave(key, follower)
            raise

    def unfollow_lists(self, what: str) -> Unsubscribed:
        """Ends following the lists of that kind, whether or not there are any."""
        for key, follower in tuple(self._joined.items()):
            if follower.what == what:
                self._leave(key, follower)
        return Unsubscribed(subscribed=False)

    async def _join(self, key: Hashable, make: Callable[[], L], follower: "_ListFollower") -> L:
        if self._is_closed:
            raise _over()
        if key not in self._joined and len(self._joined) >= MAX_LISTS:
            raise Limited(
                f"Connection follows {MAX_LISTS} lists, the most. End a subscription first.",
                code="too_many_subscriptions",
            )
        if (before := self._joined.get(key)) is not None:
            self._leave(key, before)
        self._joined[key] = follower
        try:
            joined = await self._lists.join(key, make, follower)
        except BaseException:
            self._leave(key, follower)
            raise
        if self._is_closed:
            self._leave(key, follower)
            raise _over()
        return joined

    def _leave(self, key: Hashable, follower: "_ListFollower") -> None:
        self._lists.leave(key, follower)
        follower.release()
        if self._joined.get(key) is follower:
            del self._joined[key]

    def push(self, frame: Frame) -> None:
        """Writes the frame once the client reads. Ends the connection if too many wait."""
        if self._is_closed:
            return
        if self._wire.is_writable and not self._waiting:
            self._wire.write(frame)
            return
        if not self._waiting:
            self._tasks.start_soon(self._flush)
        self._waiting.append(frame)
        self.count_waiting(len(frame))

    def count_waiting(self, size: int) -> None:
        """Counts changes that begin to wait, or with a size below zero no longer do. Ends the connection for many."""
        self._waiting_bytes += size
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._waiting.clear()
            self._waiting_bytes = 0
            self._wire.end(TOO_SLOW, "Client reads too slowly. Connect again and list again.")

    async def _flush(self) -> None:
        while self._waiting:
            await self._wire.wait_writable()
            while self._waiting and self._wire.is_writable:
                frame = self._waiting.popleft()
                self._waiting_bytes -= len(frame)
                self._wire.write(frame)

    def close(self) -> None:
        """Ends all subscriptions, and those that are just beginning."""
        self._is_closed = True
        for key in tuple(self._followed):
            self._stop(key)
        for key, follower in tuple(self._joined.items()):
            self._leave(key, follower)

    def bring(self, key: str, message: ListedMessage) -> None:
        """Writes the message of a list, unless a subscription to its session or another list brings it."""
        follower, past = self._followed.get(key), self._unfollowed.get(key)
        if (follower is not None and message in follower.span) or (past is not None and message in past):
            return
        if message.seq in self._listed.get(key, ()):
            return
        self._note_listed(key, message.seq)
        self.push(message.frame)

    def _note_listed(self, key: str, seq: int) -> None:
        listed = self._listed[key] = self._listed.pop(key, [])
        listed.append(seq)
        if len(listed) > 2 * MAX_LISTED:
            del listed[:MAX_LISTED]
        if len(self._listed) > MAX_SUBSCRIPTIONS:
            del self._listed[next(iter(self._listed))]

    def _start(self, follower: "_Follower") -> None:
        self._release(follower.key)
        if self._is_closed:
            return
        self._stop(follower.key)
        # What lists brought until now is not brought again; from now on they leave it to this subscription.
        listed = self._listed.pop(follower.key, [])
        if has_already := {seq for seq in listed if seq > follower.span.after}:
            follower.view = without(follower.view, has_already)
        if older := [seq for seq in listed if seq <= follower.span.after]:
            self._listed[follower.key] = older
        self._followed[follower.key] = follower
        self._tasks.start_soon(self._deliver, follower)

    def _stop(self, key: str) -> None:
        follower = self._followed.pop(key, None)
        if follower is not None:
            follower.is_over = True
            self._note_unfollowed(follower)
            if follower.reader is not None:
                follower.reader.end("unsubscribed")

    def _note_unfollowed(self, follower: "_Follower") -> None:
        self._unfollowed.pop(follower.key, None)
        if follower.reader is not None:
            self._unfollowed[follower.key] = replace(follower.span, until=follower.reader.cursor)
        while len(self._unfollowed) > MAX_SUBSCRIPTIONS:
            del self._unfollowed[next(iter(self._unfollowed))]

    async def _deliver(self, follower: "_Follower") -> None:
        following = self._hub.follow(
            follower.permit, follower.span.after, follower.view, on_stall=lambda: None, outlet=self._wire
        )
        reason = None
        async with following as reader:
            follower.reader = reader
            try:
                while not follower.is_over:
                    self._wire.write(await reader.next())
                    if not self._wire.is_writable:
                        await self._wire.wait_writable()
            except LogLost as lost:
                reason = lost.reason
            except ReaderEnded:
                reason = "deleted"  # a session that was hidden looks like one that was deleted
            except HubClosed:
                return
        if not follower.is_over:
            self._followed.pop(follower.key, None)
            self._note_unfollowed(follower)
            reset = SessionReset(session_key=follower.key, reason=reason or "deleted")
            self._wire.write(event_frame("session.reset", reset))


class _Brought(Struct, frozen=True, kw_only=True):
    """The messages that a subscription to a session brings."""

    after: int
    until: float = inf
    has_results: bool
    """Whether the results of tools are among them."""

    def __contains__(self, message: ListedMessage) -> bool:
        return self.after < message.seq <= self.until and (self.has_results or not message.is_result)


class _Follower:
    __slots__ = ("is_over", "key", "permit", "reader", "span", "view")

    def __init__(self, key: str, permit: Permit, span: _Brought, view: View) -> None:
        self.key = key
        self.permit = permit
        self.span = span
        self.view = view
        self.is_over = False
        self.reader: Reader | None = None


class _ListFollower:
    """Takes the changes of a list for the connection, and holds them until the snapshot is written."""

    __slots__ = ("_held", "_held_bytes", "_subscriptions", "what")

    def __init__(self, what: str, subscriptions: Subscriptions) -> None:
        self.what = what
        self._subscriptions = subscriptions
        self._held: list[tuple[str, Sequence[ListedMessage], Frame]] | None = []
        self._held_bytes = 0

    def take(self, key: str, messages: Sequence[ListedMessage], changed: Frame) -> None:
        if self._held is not None:
            self._held.append((key, messages, changed))
            size = len(changed) + sum(len(message.frame) for message in messages)
            self._held_bytes += size
            self._subscriptions.count_waiting(size)
            return
        for message in messages:
            self._subscriptions.bring(key, message)
        self._subscriptions.push(changed)

    def start(self) -> None:
        self.release()
        held, self._held = self._held or [], None
        for each in held:
            self.take(*each)

    def release(self) -> None:
        """What is held is not counted any more."""
        size, self._held_bytes = self._held_bytes, 0
        self._subscriptions.count_waiting(-size)


def _over() -> Unavailable:
    return Unavailable("Connection is over. Connect again and subscribe again.", code="draining")


def _too_many() -> Limited:
    return Limited(
        f"Connection follows {MAX_SUBSCRIPTIONS} sessions, the most. End a subscription, or use sessions.subscribe.",
        code="too_many_subscriptions",
        retry_after_seconds=1,
    )
