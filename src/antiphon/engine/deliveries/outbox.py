"""Queues texts for channels, in the transaction that causes them. Contract: channels 1, send 6, flow 7."""

import hashlib
from dataclasses import replace

from msgspec import Struct

from antiphon.domain.actor import SYSTEM
from antiphon.domain.classification import Classification
from antiphon.domain.delivery import FLOW, NOT_CLEARED
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.ids import RunId, SessionId, SessionRow
from antiphon.domain.message import JsonObject
from antiphon.domain.run import Run
from antiphon.domain.session import DeliveryContext
from antiphon.domain.silence import spoken
from antiphon.engine.access.recipients import may_leave
from antiphon.engine.ledger.append import append_events, may_be_noticed
from antiphon.policy.sinks import Sinks
from antiphon.store import deliveries
from antiphon.store.database import Transaction
from antiphon.store.events import Addition, note_unnoticed
from antiphon.store.sessions import SessionHead


class Origin(Struct, frozen=True, kw_only=True):
    """Where a text comes from."""

    session: SessionRow
    incarnation: SessionId
    run_id: RunId | None


class Outgoing(Struct, frozen=True, kw_only=True):
    """A text for a place, with what it was made of."""

    text: str
    made_of: Classification
    sinks: Sinks | None = None
    """If set, the text is checked now too, not only when it is claimed, and suppressed if it may not go."""
    on_behalf_of: tuple[SessionRow, SessionId] | None = None
    """The session and incarnation in whose name it is sent, if not the run's own."""


def is_external(place: DeliveryContext) -> bool:
    """Whether texts for the place must be sent."""
    return place.is_outside


def answers_to(run: Run | None, delivery: DeliveryContext) -> DeliveryContext | None:
    """The place of the run's answers, if it is outside: the run's own, else its session's."""
    place = delivery if run is None or run.place is None else run.place
    return place if is_external(place) else None


async def enqueue(tx: Transaction, run: Run, place: DeliveryContext, outgoing: Outgoing, *, at_ms: int) -> None:
    """Queues the run's reply for the place, if it says anything. A run has at most one delivery."""
    words = spoken(outgoing.text)
    if not words.strip() or not is_external(place):
        return
    session, incarnation = outgoing.on_behalf_of or (run.session, run.session_id)
    delivery = deliveries.NewDelivery(
        name=name_of(run.id),
        session=session,
        incarnation=incarnation,
        run_id=run.id,
        place=place,
        text=words,
        made_of=outgoing.made_of,
    )
    await _queue(tx, delivery, outgoing.sinks, at_ms)


async def _queue(tx: Transaction, delivery: deliveries.NewDelivery, sinks: Sinks | None, at_ms: int) -> None:
    place = delivery.place
    if sinks is None or await may_leave(tx, delivery.made_of, place, sinks):
        await deliveries.insert(tx, delivery, at_ms)
        return
    id = await deliveries.insert(tx, replace(delivery, is_suppressed=True), at_ms)
    data: JsonObject = {"deliveryId": id, "channel": place.channel, "to": place.to}
    origin = Origin(session=delivery.session, incarnation=delivery.incarnation, run_id=delivery.run_id)
    data |= {"code": FLOW, "error": NOT_CLEARED}
    await tell(tx, origin, EventType.DELIVERY_SUPPRESSED, data, made_of=delivery.made_of, at_ms=at_ms)


async def tell(
    tx: Transaction, origin: Origin, type: EventType, data: JsonObject, *, made_of: Classification, at_ms: int
) -> None:
    """Appends what became of a text to the incarnation that it belongs to, even after a reset.

    The event names the recipient, who may have been chosen by what the text was made of. Contract: flow 2.
    """
    event = NewEvent(type=type, actor=str(SYSTEM), classification=made_of, run_id=origin.run_id, data=data)
    addition = Addition(incarnation=origin.incarnation, events=[event], at_ms=at_ms)
    seq = await append_events(tx, origin.session, addition)
    if not await may_be_noticed(tx, origin.session, made_of):
        await note_unnoticed(tx, origin.session, seq, made_of)


async def enqueue_message(
    tx: Transaction,
    session: SessionHead,
    place: DeliveryContext,
    outgoing: Outgoing,
    *,
    message_id: str,
    run_id: RunId | None,
    at_ms: int,
) -> None:
    """Queues the text of a person's message for the place, before the reply of the run that answers it."""
    if not outgoing.text.strip():
        return
    delivery = deliveries.NewDelivery(
        name=name_of(f"{session.row} {message_id}"),
        session=session.row,
        incarnation=SessionId(session.id),
        run_id=run_id,
        place=place,
        text=outgoing.text,
        made_of=outgoing.made_of,
    )
    await _queue(tx, delivery, outgoing.sinks, at_ms)


def name_of(cause: str) -> str:
    """The part of a delivery's id that its cause decides, so that one cause has one delivery."""
    return hashlib.sha256(cause.encode()).hexdigest()[:20]
