"""Sessions of an embedded system."""

from collections.abc import AsyncGenerator, Collection, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypedDict, Unpack

from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Classification
from antiphon.domain.errors import Conflict, Invalid
from antiphon.domain.event import Event
from antiphon.domain.ids import SessionId
from antiphon.domain.keys import SessionKind
from antiphon.domain.label import parse_label
from antiphon.domain.message import JsonObject, Part, Role, text_content
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.session import Session, SessionSummary, Source
from antiphon.domain.targets import NamedTarget
from antiphon.embedded.arguments import checked, rows
from antiphon.embedded.lease import Lease
from antiphon.embedded.runs import RunHandle
from antiphon.embedded.streams import follow_log
from antiphon.engine.checkpoints.checkpoints import CheckpointOutcome
from antiphon.engine.runs.cancel import Cancelled
from antiphon.engine.sessions.inbox import Envelope
from antiphon.engine.sessions.patches import session_columns
from antiphon.engine.sessions.sessions import ListCursor, SessionAttributes, SessionFilter
from antiphon.engine.views.contents import SessionContents
from antiphon.engine.views.incarnations import EarlierConversation
from antiphon.engine.views.trees import Tree
from antiphon.wire.encoding import milliseconds

LISTED = 50
MEMBERS = 300


class SessionChanges(TypedDict, total=False):
    """The fields of a session that a program may change."""

    label: str | None
    display_name: str | None
    description: str | None
    model: str | None
    thinking_level: Literal["off", "low", "medium", "high"] | None
    verbose_level: str | None
    send_policy: Literal["allow", "deny"] | None
    queue_mode: QueueMode | None
    clearance: Classification | None


class SessionHandle:
    """A session of an embedded system. It is used as its owner."""

    def __init__(self, lease: Lease, session: Session, ended: SessionId | None = None) -> None:
        self._lease = lease
        self._target = NamedTarget(None if ended else session.key, ended)
        self.key = str(session.key)

    @checked
    async def post(
        self,
        text: str | tuple[Part, ...],
        *,
        message_id: str | None = None,
        queue_mode: QueueMode | None = None,
        sender: str | None = None,
        mentioned: bool = True,
        deliver: bool = False,
    ) -> RunHandle:
        """Stores the message durably and returns the run that answers it, before any model is called.

        With a `message_id`, a repeated call is the same message: it is stored and answered once. The reply stays in
        the log. `deliver` also sends message and reply through the session's channel; raises `Conflict` (`no_place`) if
        it has none.
        """
        posted = await self._lease.services.inbox.post(
            OWNER,
            self._target,
            _content(text),
            message_id=message_id,
            mode=queue_mode,
            envelope=Envelope(sender=sender, mentioned=mentioned, deliver=deliver),
        )
        if posted.run_id is None:
            raise Conflict("Message started no run: it is stored for later turns of the group", code="not_triggered")
        return RunHandle(self._lease, posted.run_id)

    @checked
    async def append(
        self,
        text: str | tuple[Part, ...],
        *,
        message_id: str | None = None,
        role: Role = Role.USER,
        sender: str | None = None,
        occurred_at: datetime | None = None,
    ) -> int:
        """Stores the message for later turns without starting a run; returns its `seq`."""
        posted = await self._lease.services.inbox.append(
            OWNER,
            self._target,
            _content(text),
            message_id=message_id,
            role=role,
            envelope=Envelope(sender=sender),
            occurred_at=occurred_at,
        )
        return posted.seq

    @checked
    async def history(
        self, *, limit: int = LISTED, before: int | None = None, include_tools: bool = False
    ) -> list[Event]:
        """The newest messages below the `seq` `before`, oldest first, each in its event's `message`."""
        page = await self._lease.services.history.page(
            OWNER, self._target, limit=rows(limit), before=before, include_tools=include_tools
        )
        return page.events

    @checked
    async def events(self, *, after: int = 0) -> AsyncGenerator[Event]:
        """Every event of the present incarnation above `after`, up to now."""
        async for event in self._lease.services.history.events(OWNER, self._target, after):
            yield event

    @checked
    async def follow(self, *, after: int | None = None) -> AsyncGenerator[Event]:
        """Every event above `after`, then each new one as it is stored; without `after`, only new ones.

        Raises `Conflict` for an `after` that the log does not hold, and `NotFound` if the session is deleted.
        """
        async for event in follow_log(self._lease, self._target, after):
            yield event

    @checked
    async def incarnations(
        self, *, limit: int = LISTED, after: EarlierConversation | None = None
    ) -> Sequence[EarlierConversation]:
        """The earlier conversations, which resets have ended, newest first; `after` is the last of the previous page.

        `app.sessions.get` takes the id of one, to read or fork it.
        """
        page = await self._lease.services.incarnations.ended(
            OWNER, self._target, limit=rows(limit), before=None if after is None else after.first_seq
        )
        return page.conversations

    async def status(self) -> Session:
        """The session with its state, labels and usage."""
        return (await self._lease.services.sessions.get(OWNER, self._target)).session

    async def contents(self) -> SessionContents:
        """How much the session holds, which its deletion takes away; numbers of 1,000 mean at least so many."""
        return await self._lease.services.contents.read(OWNER, self._target)

    @checked
    async def tree(self, *, limit: int = MEMBERS, include_inactive: bool = False) -> Tree:
        """The session and what it spawned; the limit does not count the session itself."""
        return await self._lease.services.trees.under(
            OWNER, self._target, include_inactive=include_inactive, limit=rows(limit, least=0)
        )

    @checked
    async def change(self, **changes: Unpack[SessionChanges]) -> Session:
        """Changes the named fields; None unsets a field. Raises `Invalid`, also for a model that is not configured."""
        columns: dict[str, object] = {**changes}
        if unknown := columns.keys() - SessionChanges.__annotations__.keys():
            raise Invalid(
                f"Session has no such field: {min(unknown)!r}. You can change "
                f"{', '.join(SessionChanges.__annotations__)}.",
                code="invalid_request",
            )
        for name in ("label", "display_name"):
            if isinstance(text := columns.get(name), str):
                columns[name] = _label(text)
        if isinstance(model := columns.get("model"), str):
            await self._lease.app.models.check_key(model)
        return await self._lease.services.sessions.patch(OWNER, self._target, session_columns(columns))

    @checked
    async def fork(self, *, seq: int | None = None) -> "SessionHandle":
        """A new session with a copy of the log up to `seq`."""
        return SessionHandle(self._lease, await self._lease.services.forks.fork(OWNER, self._target, seq))

    async def cancel(self) -> Cancelled:
        """Cancels the work of the session and of everything that it spawned."""
        return await self._lease.services.runs.cancel_session(OWNER, self._target)

    async def reset(self) -> None:
        """Starts a new incarnation under the same key. The old one can still be read by its id."""
        await self._lease.services.resets.reset(OWNER, self._target)

    @checked
    async def checkpoint(self, *, wait: float = 60) -> CheckpointOutcome:
        """Has the session look back at its present conversation, and waits for the end."""
        timeout = timedelta(seconds=wait)
        return await self._lease.services.checkpoints.ask(OWNER, self._target, timeout)

    async def delete(self) -> None:
        """Deletes the session with its log."""
        await self._lease.services.sessions.delete(OWNER, self._target)


class SessionHandles:
    """`app.sessions`."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    @checked
    async def open(
        self, name: str, *, agent_id: str | None = None, metadata: JsonObject | None = None, label: str | None = None
    ) -> SessionHandle:
        """The session, created if it does not exist. `name` is a key, a session id, or a word for `api:<word>`.

        Raises `Invalid`, also for a label with a line break.
        """
        services = self._lease.services
        opened = await services.sessions.open(
            OWNER,
            self._target(name),
            agent_id=services.rules.agent_id(agent_id),
            source=Source(kind="api"),
            attributes=SessionAttributes(label=None if label is None else _label(label), metadata=metadata or {}),
        )
        return SessionHandle(self._lease, opened.session)

    @checked
    async def get(self, name: str) -> SessionHandle:
        """The session, which must exist; the id of an ended incarnation reads and forks that one. Raises `NotFound`."""
        found = await self._lease.services.sessions.get(OWNER, self._target(name))
        return SessionHandle(self._lease, found.session, found.incarnation.id if found.is_ended else None)

    @checked
    async def list(
        self,
        *,
        search: str | None = None,
        kinds: Collection[SessionKind] | None = None,
        agent_id: str | None = None,
        active: timedelta | None = None,
        include_inactive: bool = False,
        limit: int = LISTED,
        after: SessionSummary | None = None,
    ) -> list[SessionSummary]:
        """Sessions, newest first; `after` is the last one of the previous page."""
        services = self._lease.services
        where = SessionFilter(
            search=search,
            kinds=None if kinds is None else frozenset(kinds),
            agent_id=services.rules.agent_id(agent_id),
            updated_since=None if active is None else _before(services.clock.now(), active),
            include_inactive=include_inactive,
        )
        end = None if after is None else ListCursor(milliseconds(after.updated_at), after.row)
        return (await services.sessions.list(OWNER, where, limit=rows(limit), after=end)).sessions

    @checked
    async def trees(self, *, roots: int = 30, limit: int = MEMBERS, include_inactive: bool = False) -> Tree:
        """The sessions without a parent that changed last, each with what it spawned."""
        return await self._lease.services.trees.recent(
            OWNER, include_inactive=include_inactive, roots=rows(roots), limit=rows(limit, least=0)
        )

    def _target(self, name: str) -> NamedTarget:
        try:
            return self._lease.services.sessions.target(name)
        except Invalid:
            if ":" in name:
                raise
            return self._lease.services.sessions.target(f"api:{name}")


def _content(text: str | tuple[Part, ...]) -> tuple[Part, ...]:
    return text_content(text) if isinstance(text, str) else text


def _before(now: datetime, time: timedelta) -> datetime | None:
    """None for a time longer than the calendar."""
    try:
        return now - time
    except OverflowError:
        return None


def _label(text: str) -> str:
    try:
        return parse_label(text)
    except ValueError as error:
        raise Invalid(f"Label {error}.", code="invalid_request") from error
