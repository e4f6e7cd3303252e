"""A session as the page shows it."""

from dataclasses import dataclass, replace

from antiphon.domain.actor import Principal
from antiphon.domain.event import Event
from antiphon.domain.keys import SessionKind, main_key
from antiphon.domain.run import RunStatus
from antiphon.domain.session import Session, SessionType
from antiphon.domain.targets import NamedTarget
from antiphon.engine.ledger.text_work import size_of, work_on
from antiphon.engine.runs.cancel import RunFilter
from antiphon.gateway.context import Gateway
from antiphon.gateway.page.entries import PageEntry, entries_of
from antiphon.gateway.page.listing import AT_FIRST, Item, items_of
from antiphon.gateway.page.titles import titles_of

MESSAGES = 60
UNFINISHED = frozenset(status for status in RunStatus if not status.is_terminal)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageConversation:
    """A session's entries, and the cursor to follow from."""

    session: Session
    title: str
    agent: str
    model: str
    entries: list[PageEntry]
    older: int | None
    """The cursor of the messages before these; None if there are none."""
    last_seq: int
    runs: list[str]
    """The unfinished runs."""
    can_delete: bool
    parent: Session | None
    """The nearest session above it that is left."""
    item: Item
    """The session as in the list, with its newest children."""

    @property
    def key(self) -> str:
        return str(self.session.key)

    @property
    def is_main(self) -> bool:
        return self.session.key == main_key(self.session.agent_id)


async def read_conversation(
    gateway: Gateway, principal: Principal, name: str, before: int | None = None
) -> PageConversation:
    """The newest entries, or those before a cursor. Raises `NotFound`, `Invalid`, `Conflict` for a pruned cursor."""
    services = gateway.services
    head = await conversation_head(gateway, principal, name)
    target = NamedTarget(head.session.key, None)
    page = await services.history.page(principal, target, limit=MESSAGES, before=before, include_tools=True)
    end = page.last_seq + 1 if before is None else before
    start = page.events[0].seq if page.has_more else page.session.incarnation_seq
    events: list[Event] = []
    async for event in services.history.events(principal, target, start - 1):
        if event.seq >= end:
            break
        events.append(event)
    entries = await work_on(size_of(event.message for event in events), entries_of, events)
    runs = await services.runs.list(principal, RunFilter(session=page.session.row, statuses=UNFINISHED), limit=200)
    return replace(
        head,
        session=page.session,
        entries=entries,
        older=start if page.has_more else None,
        last_seq=page.last_seq,
        runs=[run.id for run in runs if run.session_id == page.session.id],
    )


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
    )
