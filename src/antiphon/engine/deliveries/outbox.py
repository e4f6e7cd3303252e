"""Queues texts for channels, in the transaction that causes them. Contract: channels 1, send 6."""

import hashlib

from antiphon.domain.ids import RunId, SessionId, SessionRow
from antiphon.domain.message import UserMessage, text_of
from antiphon.domain.run import Run
from antiphon.domain.session import DeliveryContext
from antiphon.domain.silence import spoken
from antiphon.store import deliveries
from antiphon.store.database import Transaction
from antiphon.store.sessions import SessionHead


def is_external(place: DeliveryContext) -> bool:
    """Whether texts for the place must be sent."""
    return place.is_outside


def answers_to(run: Run | None, delivery: DeliveryContext) -> DeliveryContext | None:
    """The place of the run's answers, if it is outside: the run's own, else its session's."""
    place = delivery if run is None or run.place is None else run.place
    return place if is_external(place) else None


async def enqueue(
    tx: Transaction,
    run: Run,
    place: DeliveryContext,
    text: str,
    *,
    at_ms: int,
    on_behalf_of: tuple[SessionRow, SessionId] | None = None,
) -> None:
    """Queues the run's reply for the place, if it says anything. A run has at most one delivery.

    It is sent as the run's session, or `on_behalf_of` another session's incarnation.
    """
    words = spoken(text)
    if not words.strip() or not is_external(place):
        return
    session, incarnation = on_behalf_of or (run.session, run.session_id)
    delivery = deliveries.NewDelivery(
        name=_name(run.id), session=session, incarnation=incarnation, run_id=run.id, place=place, text=words
    )
    await deliveries.insert(tx, delivery, at_ms)


async def enqueue_message(
    tx: Transaction,
    session: SessionHead,
    message: UserMessage,
    place: DeliveryContext,
    *,
    run_id: RunId | None,
    at_ms: int,
) -> None:
    """Queues the text of a person's message for the place, before the reply of the run that answers it."""
    text = text_of(message.content)
    if not text.strip():
        return
    delivery = deliveries.NewDelivery(
        name=_name(f"{session.row} {message.message_id}"),
        session=session.row,
        incarnation=SessionId(session.id),
        run_id=run_id,
        place=place,
        text=text,
    )
    await deliveries.insert(tx, delivery, at_ms)


def _name(of: str) -> str:
    return hashlib.sha256(of.encode()).hexdigest()[:20]
