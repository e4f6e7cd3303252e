"""Queues texts for channels, in the transaction that causes them. Contract: channels 1, send 6, flow 7."""

import hashlib
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import SYSTEM
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.delivery import FLOW, MAY_BE_SHOWN_TWICE, NOT_CLEARED, Delivery
from antiphon.domain.distrust import ReadSource
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.ids import ApprovalId, RunId, SessionId, SessionRow
from antiphon.domain.message import JsonObject
from antiphon.domain.own_text import OwnText, own_text
from antiphon.domain.run import PlaceGot, Run, RunStatus
from antiphon.domain.session import DeliveryContext
from antiphon.domain.silence import spoken
from antiphon.domain.telling import Cause
from antiphon.engine.access.recipients import may_leave
from antiphon.engine.ledger.append import append_events, may_be_noticed
from antiphon.engine.rules import Rules
from antiphon.store import deliveries, runs
from antiphon.store.database import Transaction
from antiphon.store.events import Addition, note_unnoticed
from antiphon.store.sessions import SessionHead

_MAY_STAY = (
    "The beginning of the reply was sent, and no answer came. If the platform has it, it stays there beside the reply, "
    "because the id of its message is unknown."
)


class Origin(Struct, frozen=True, kw_only=True):
    """Where a text comes from."""

    session: SessionRow
    incarnation: SessionId
    run_id: RunId | None


class StreamedText(Struct, frozen=True, kw_only=True):
    """A run's reply that is about to be shown while it is written."""

    run: Run
    place: DeliveryContext
    made_of: Classification


class ExitCheck(Struct, frozen=True, kw_only=True):
    """How texts are checked when they are queued, not only when they are claimed."""

    rules: Rules
    read: tuple[ReadSource, ...] | None = None
    """Words of others that may have steered them; None if that follows from what they were made of."""


class Outgoing(Struct, frozen=True, kw_only=True):
    """A text for a place, with what it was made of."""

    text: str
    made_of: Classification
    check: ExitCheck | None = None
    """If set, the text is suppressed now if it may not go."""
    on_behalf_of: tuple[SessionRow, SessionId] | None = None
    """The session and incarnation in whose name it is sent, if not the run's own."""
    cause: Cause | None = None
    """Why it stands in the place of a reply."""


class Queued(NamedTuple):
    """A text that was queued, or suppressed because it may not go to its place."""

    id: str
    is_suppressed: bool

    @property
    def got(self) -> PlaceGot:
        """What the place of its run gets."""
        return PlaceGot.FLOW if self.is_suppressed else PlaceGot.SENT


def is_external(place: DeliveryContext) -> bool:
    """Whether texts for the place must be sent."""
    return place.is_outside


def answers_to(run: Run | None, delivery: DeliveryContext) -> DeliveryContext | None:
    """The place of the run's answers, if it is outside: the run's own, else its session's."""
    place = delivery if run is None or run.place is None else run.place
    return place if is_external(place) else None


async def enqueue(
    tx: Transaction, run: Run, place: DeliveryContext, outgoing: Outgoing, *, step: int | None = None
) -> Queued | None:
    """Queues the run's reply for the place, or the text of its step of that `seq`; None if it says nothing.

    Run and step name the delivery, so that each has one. It replaces the message that showed the text while it was
    written. That message is deleted if the text says nothing, or goes to another place than the message.
    """
    words = spoken(outgoing.text)
    if not words.strip() or not is_external(place):
        await end_stream(tx, run, place)
        return None
    shown = await _take_stream(tx, run)
    if shown is not None and shown.place != place:
        await _withdraw_shown(tx, run, shown)
        shown = None
    session, incarnation = outgoing.on_behalf_of or (run.session, run.session_id)
    delivery = deliveries.NewDelivery(
        name=name_of(run.id if step is None else f"{run.id} {step}"),
        session=session,
        incarnation=incarnation,
        run_id=run.id,
        place=place,
        text=words,
        made_of=outgoing.made_of,
        since=None if shown is None else deliveries.number_in(shown.id),
        replaces=None if shown is None else shown.platform_id,
        may_be_shown=shown is not None and shown.platform_id is None,
        cause=outgoing.cause,
    )
    return await _queue(tx, delivery, outgoing.check)


async def begin_stream(tx: Transaction, streamed: StreamedText) -> str | None:
    """Stores that a message is about to show the run's reply, and returns the id of its delivery.

    The reply will replace the message, whatever happens until then. None if the run does not execute any more, or if
    a message may show the reply already: then nothing may be sent.
    """
    run, place = streamed.run, streamed.place
    now = await runs.find(tx, run.id)
    if now is None or now.fence != run.fence or now.status is not RunStatus.RUNNING:
        return None
    if await deliveries.find_streaming(tx, run.id) is not None:
        return None
    delivery = deliveries.NewDelivery(
        name=name_of(run.id),
        session=run.session,
        incarnation=run.session_id,
        run_id=run.id,
        place=place,
        text="",
        made_of=streamed.made_of,
        is_streaming=True,
    )
    return await deliveries.insert(tx, delivery, tx.now_ms)


async def note_shown(tx: Transaction, streamed: StreamedText, platform_id: str) -> bool:
    """Stores the message that shows the run's reply; deletes it, and returns False, if the run has ended meanwhile."""
    run = streamed.run
    if await deliveries.note_streaming(tx, run.id, platform_id):
        return True
    await _queue_withdrawal(tx, streamed.place, platform_id, cause=f"stream {run.id} {platform_id}")
    return False


async def forget_stream(tx: Transaction, run: RunId) -> None:
    """Takes back what `begin_stream` stored: the platform has refused the message."""
    await deliveries.delete_streaming(tx, run)


async def end_stream(tx: Transaction, run: Run, place: DeliveryContext) -> None:
    """Deletes the message that showed the reply of a run that ends without one.

    `place` is that of the run's answers; if the run has none of its own, the message may stand at an earlier one.
    """
    if run.place is not None and not is_external(place):
        return
    shown = await _take_stream(tx, run)
    if shown is not None:
        await _withdraw_shown(tx, run, shown)


async def _withdraw_shown(tx: Transaction, run: Run, shown: Delivery) -> None:
    """Queues the deletion of the message, where it stands."""
    if shown.platform_id is not None:
        await _queue_withdrawal(tx, shown.place, shown.platform_id, cause=f"stream {run.id}")


async def _take_stream(tx: Transaction, run: Run) -> Delivery | None:
    """Removes the row of the reply as it was shown while it was written, and returns it; None if nothing was shown.

    If it is unknown whether the platform has the beginning of the reply, the log says so.
    """
    shown = await deliveries.find_streaming(tx, run.id)
    if shown is None:
        return None
    await deliveries.delete_streaming(tx, run.id)
    if shown.platform_id is None and shown.session is not None and shown.session_id is not None:
        data: JsonObject = {"code": MAY_BE_SHOWN_TWICE, "deliveryId": shown.id}
        data |= {"channel": shown.place.channel, "to": shown.place.to, "error": _MAY_STAY}
        origin = Origin(session=shown.session, incarnation=shown.session_id, run_id=run.id)
        await tell(tx, origin, EventType.ERROR, data, made_of=shown.made_of)
    return shown


async def _queue(tx: Transaction, delivery: deliveries.NewDelivery, check: ExitCheck | None) -> Queued:
    place = delivery.place
    if check is None or await may_leave(tx, delivery.made_of, place, check.rules.sinks):
        return Queued(await deliveries.insert(tx, delivery, tx.now_ms), is_suppressed=False)
    if delivery.replaces is not None:
        await _queue_withdrawal(tx, place, delivery.replaces, cause=f"stream {delivery.name}")
    id = await deliveries.insert(tx, replace(delivery, is_suppressed=True, replaces=None), tx.now_ms)
    if delivery.session is not None and delivery.incarnation is not None:
        data: JsonObject = {"deliveryId": id, "channel": place.channel, "to": place.to}
        origin = Origin(session=delivery.session, incarnation=delivery.incarnation, run_id=delivery.run_id)
        data |= {"code": FLOW, "error": NOT_CLEARED}
        await tell(tx, origin, EventType.DELIVERY_SUPPRESSED, data, made_of=delivery.made_of)
    return Queued(id, is_suppressed=True)


async def tell(tx: Transaction, origin: Origin, type: EventType, data: JsonObject, *, made_of: Classification) -> None:
    """Appends what became of a text to the incarnation that it belongs to, even after a reset.

    The event names the recipient, who may have been chosen by what the text was made of. Contract: flow 2.
    """
    event = NewEvent(type=type, actor=str(SYSTEM), classification=made_of, run_id=origin.run_id, data=data)
    addition = Addition(incarnation=origin.incarnation, events=[event], at_ms=tx.now_ms)
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
        spans=(),
        made_of=outgoing.made_of,
    )
    await _queue(tx, delivery, outgoing.check)


async def queue_withdrawal(tx: Transaction, shown: Delivery) -> None:
    """Queues the deletion of the message that the text, now withheld, was to replace."""
    if shown.replaces is not None:
        await _queue_withdrawal(tx, shown.place, shown.replaces, cause=shown.id)


async def _queue_withdrawal(tx: Transaction, place: DeliveryContext, platform_id: str, *, cause: str) -> None:
    withdrawal = deliveries.NewDelivery(
        name=name_of(f"withdraw {cause}"),
        session=None,
        incarnation=None,
        run_id=None,
        place=place,
        text="",
        made_of=PUBLIC,
        replaces=platform_id,
    )
    await deliveries.insert(tx, withdrawal, tx.now_ms)


async def enqueue_notice(
    tx: Transaction, place: DeliveryContext, text: str, *, name: str, made_of: Classification = PUBLIC
) -> None:
    """Queues Antiphon's own words for the place: the answer to a command, a code for a stranger, a refusal.

    They belong to no session, so no send policy applies. `name` distinguishes their cause from all others. The text is
    checked when it is claimed, like any other. Does nothing for a place that is not outside.
    """
    if not text.strip() or not is_external(place):
        return
    notice = deliveries.NewDelivery(
        name=name_of(f"notice {name}"),
        session=None,
        incarnation=None,
        run_id=None,
        place=place,
        text=text,
        spans=(),
        made_of=made_of,
    )
    await deliveries.insert(tx, notice, tx.now_ms)


async def note_copy(tx: Transaction, id: ApprovalId, place: DeliveryContext, message: str) -> None:
    """Notes that another message shows the request: the platform took it, and the process died before it knew.

    So this message loses its buttons, too, once the request is answered.
    """
    shown = await deliveries.list_shown_at(tx, id, place)
    if not shown or any(each.platform_id == message for each in shown):
        return
    copied = shown[0]
    copy = deliveries.NewDelivery(
        name=name_of(f"copy {copied.id} {message}"),
        session=None,
        incarnation=None,
        run_id=None,
        place=place,
        text=copied.text,
        spans=copied.spans,
        made_of=copied.made_of,
        shown_as=message,
        approval=id,
    )
    await deliveries.insert(tx, copy, tx.now_ms)


async def show_outcome(tx: Transaction, shown: Delivery, outcome: OwnText) -> None:
    """Queues the text with what became of it, without buttons, in place of the message that asked."""
    told = own_text(OwnText(shown.text, shown.spans or ()), "\n\n", outcome)
    await deliveries.delete(tx, shown.id)
    answered = deliveries.NewDelivery(
        name=name_of(f"answer {shown.id}"),
        session=None,
        incarnation=None,
        run_id=None,
        place=shown.place,
        text=told.text,
        spans=told.spans,
        made_of=shown.made_of,
        replaces=shown.platform_id,
    )
    await deliveries.insert(tx, answered, tx.now_ms)


def name_of(cause: str) -> str:
    """The part of a delivery's id that its cause decides, so that one cause has one delivery."""
    return hashlib.sha256(cause.encode()).hexdigest()[:20]
