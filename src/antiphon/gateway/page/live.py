"""What a session's log holds after a `seq`, as the page shows it: fetched whenever something has happened."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from antiphon.domain.event import Event
from antiphon.domain.message import UserMessage
from antiphon.domain.tokens import TokenScope
from antiphon.engine.access.names import PersonNames
from antiphon.engine.ledger.text_work import size_of, work_on
from antiphon.gateway.operations.following import is_in_log
from antiphon.gateway.operations.operation import Http, OperationRequest, Params, operation
from antiphon.gateway.page.entries import PageEntry, asked_in, entry_of, readable
from antiphon.gateway.page.rendering import entry_html
from antiphon.wire.encoding import Shape

MOST_ENTRIES = 200


class ShowEntries(Params, frozen=True, kw_only=True):
    session: str
    after: Annotated[int, Meta(ge=0, lt=10**18)]


class PageEvent(Shape, frozen=True, kw_only=True):
    """An event, with what people see of it."""

    seq: int
    type: str
    session_id: str
    """The incarnation."""
    run_id: str | None
    message_id: str | None
    html: str
    """Empty for an event that people do not see."""


class PageEvents(Shape, frozen=True, kw_only=True):
    entries: Sequence[PageEvent]
    seq: int
    """How far these go: what the reader may not see is counted too."""
    has_more: bool = False
    """Whether the log holds more after these."""
    reset: str | None = None
    """Why the log does not hold `after`: `pruned` or `ahead`. The page begins anew."""


@operation("pages.entries", Http("GET /page/entries", is_lenient=True), scope=TokenScope.READ)
async def show_entries(request: OperationRequest, params: ShowEntries) -> PageEvents:
    """The first events after that number, in order."""
    services, target = request.services, request.target(params.session)
    session = (await services.sessions.get(request.principal, target)).shown
    if not is_in_log(session, params.after):
        return PageEvents(
            entries=(), seq=session.last_seq, reset="ahead" if params.after > session.last_seq else "pruned"
        )
    events: list[Event] = []
    async for event in services.history.events(request.principal, target, params.after):
        if len(events) == MOST_ENTRIES:
            return PageEvents(entries=await _shown(events, request), seq=events[-1].seq, has_more=True)
        events.append(event)
    newest = events[-1].seq if events else 0
    return PageEvents(entries=await _shown(events, request), seq=max(session.last_seq, newest))


async def _shown(events: Sequence[Event], request: OperationRequest) -> list[PageEvent]:
    names = request.services.names
    await names.read(asked_in(events))
    events = await readable(events, request.principal, request.services.people)
    rendered = await work_on(size_of(event.message for event in events), _rendered, events, names)
    return [_page_event(event, html) for event, html in zip(events, rendered, strict=True)]


def _rendered(events: Sequence[Event], names: PersonNames) -> list[str]:
    entries: list[PageEntry | None] = [entry_of(event, names.find) for event in events]
    return ["" if entry is None else entry_html(entry) for entry in entries]


def _page_event(event: Event, html: str) -> PageEvent:
    return PageEvent(
        seq=event.seq,
        type=event.type,
        session_id=event.session_id,
        run_id=event.run_id,
        message_id=event.message.message_id if isinstance(event.message, UserMessage) else None,
        html=html,
    )
