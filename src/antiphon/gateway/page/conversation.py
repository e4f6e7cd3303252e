"""A session as the page shows it."""

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.errors import Denied, NotFound
from antiphon.domain.event import Event
from antiphon.domain.ids import TaskId
from antiphon.domain.keys import SessionKind, main_key
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.schedule import in_words
from antiphon.domain.session import Session, SessionType
from antiphon.domain.stored_task import StoredTask
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.names import PersonNames
from antiphon.engine.access.people import People
from antiphon.engine.deliveries.outbox import is_external
from antiphon.engine.ledger.text_work import size_of, work_on
from antiphon.engine.runs.cancel import RunFilter
from antiphon.engine.views.history import History
from antiphon.gateway.context import Gateway
from antiphon.gateway.page.entries import PageEntry, asked_in, entries_of, gap_entry, readable
from antiphon.gateway.page.listing import AT_FIRST, Item, items_of
from antiphon.gateway.page.titles import titles_of

MESSAGES = 60
BEFORE = 20
"""How many messages are shown before one that was searched for."""
UNFINISHED = frozenset(status for status in RunStatus if not status.is_terminal)


class PageConversation(Struct, frozen=True, kw_only=True):
    """A session's entries, and the cursor to follow from."""

    session: Session
    name: str
    """The key or id that was asked for; requests for its other messages name it too."""
    title: str
    agent: str
    model: str
    entries: list[PageEntry]
    """Some may be left out; an entry of kind `gap` stands for them."""
    at: int | None = None
    """The `seq` of the message to show first; None for the newest."""
    is_ended: bool = False
    """Whether it is an earlier conversation of the session."""
    older: int | None
    """The cursor of the messages before these; None if there are none."""
    last_seq: int
    runs: list[str]
    """The unfinished runs."""
    delay: str = ""
    """Why the run at work waits: for its model's provider, or for an approval."""
    can_delete: bool
    parent: Session | None
    """The nearest session above it that is left."""
    item: Item
    """The session as in the list, with its newest children."""
    task: StoredTask | None = None
    """The task whose runs work here."""

    @property
    def key(self) -> str:
        return str(self.session.key)

    @property
    def place(self) -> str | None:
        """Where the session's channel sends texts; None for a session without one."""
        delivery = self.session.delivery
        return f"{delivery.channel} {delivery.to}" if is_external(delivery) else None

    @property
    def task_words(self) -> str:
        """When the task fires."""
        return "" if self.task is None else in_words(self.task.schedule)

    @property
    def is_main(self) -> bool:
        return self.session.key == main_key(self.session.agent_id)


async def read_conversation(
    gateway: Gateway, principal: Principal, name: str, *, before: int | None = None, at: int | None = None
) -> PageConversation:
    """The newest entries, or those before a cursor; and those around `at`.

    Raises `NotFound`, `Invalid`, `Conflict` for a pruned cursor.
    """
    services = gateway.services
    head = await conversation_head(gateway, principal, name)
    named = services.sessions.target(name)
    found = await services.sessions.get(principal, named)
    target = named if found.is_ended else NamedTarget(head.session.key, None)
    page = await services.history.page(principal, target, limit=MESSAGES, before=before, include_tools=True)
    end = page.last_seq + 1 if before is None else before
    start = page.events[0].seq if page.has_more else page.session.incarnation_seq
    log = Log(services.history, principal, target, services.names, services.people)
    entries, older = await log.entries(start - 1, end), start if page.has_more else None
    if at is not None and page.has_more and at < start:
        around = await services.history.page(principal, target, limit=BEFORE, before=at + 1, include_tools=True)
        older = around.events[0].seq if around.has_more else None
        entries = [*await log.entries((older or page.session.incarnation_seq) - 1, start, most=MESSAGES), *entries]
    runs = await services.runs.list(principal, RunFilter(session=page.session.row, statuses=UNFINISHED), limit=200)
    return replace(
        head,
        session=page.session,
        entries=entries,
        at=at,
        is_ended=found.is_ended,
        older=older,
        last_seq=page.last_seq,
        runs=[run.id for run in runs if run.session_id == page.session.id],
        delay=next((_delay_of(run) for run in runs if _delay_of(run)), ""),
    )


def _delay_of(run: Run) -> str:
    """What an unfinished run waits for, in words."""
    if run.delay is not None:
        return run.delay.text
    return "waits for approval" if run.is_awaiting_approval and not run.is_parked else ""


async def read_between(gateway: Gateway, principal: Principal, name: str, *, after: int, until: int) -> list[PageEntry]:
    """The first entries between two numbers, and a gap for the others. Raises `NotFound`, `Invalid`."""
    services = gateway.services
    log = Log(services.history, principal, services.sessions.target(name), services.names, services.people)
    return await log.entries(after, until, most=MESSAGES)


class Log(Struct, frozen=True):
    """The log of a session, for somebody who may read it."""

    history: History
    principal: Principal
    target: NamedTarget
    names: PersonNames
    people: People

    async def entries(self, after: int, until: int, *, most: int | None = None) -> list[PageEntry]:
        """The entries between two numbers; after the `most` first messages, a gap for the others."""
        events: list[Event] = []
        messages = 0
        async for event in self.history.events(self.principal, self.target, after):
            if event.seq >= until:
                break
            if messages == most:
                gap = gap_entry(events[-1], until)
                return [*await self._shown(events), gap]
            events.append(event)
            messages += event.message is not None
        return await self._shown(events)

    async def _shown(self, events: list[Event]) -> list[PageEntry]:
        await self.names.read(asked_in(events))
        shown = await readable(events, self.principal, self.people)
        return await work_on(size_of(event.message for event in events), entries_of, shown, self.names.find)


async def conversation_head(gateway: Gateway, principal: Principal, name: str) -> PageConversation:
    """The conversation of that key or id, without entries and runs. Raises `NotFound`, `Invalid`."""
    services = gateway.services
    family = await services.trees.family(principal, services.sessions.target(name), limit=AT_FIRST)
    session = family.tree.members[0].session
    agent = services.rules.agents.get(session.agent_id)
    (item,) = items_of(family.tree, {session.row: AT_FIRST}, services.clock.now())
    is_group = session.source.type is SessionType.GROUP or session.key.kind is SessionKind.GROUP
    return PageConversation(
        session=session,
        name=name,
        title=titles_of(gateway).of(session),
        agent=agent.name if agent else session.agent_id,
        model=session.model or (agent.model if agent else "unknown"),
        entries=[],
        older=None,
        last_seq=session.last_seq,
        runs=[],
        can_delete=not is_group and session.key != main_key(session.agent_id),
        parent=family.parent,
        item=item,
        task=await _task_of(gateway, principal, session),
    )


async def _task_of(gateway: Gateway, principal: Principal, session: Session) -> StoredTask | None:
    """The task whose session it is, if the reader may see it and it was not removed."""
    if session.key.kind is not SessionKind.CRON:
        return None
    try:
        return await gateway.services.tasks.get(principal, TaskId(session.key.last_segment))
    except (NotFound, Denied):
        return None
