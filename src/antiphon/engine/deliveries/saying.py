"""What a place hears besides replies: texts of steps, and why there is no reply. Contract: runs 2, groups 4."""

from antiphon.domain.classification import Classification
from antiphon.domain.delivery import Delivery
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.ids import SessionRow
from antiphon.domain.keys import ChatType
from antiphon.domain.left_out import IMAGE_NOT_SEEN
from antiphon.domain.message import JsonObject
from antiphon.domain.person import PersonRole, private_chat
from antiphon.domain.run import PlaceGot, Run
from antiphon.domain.session import DEFAULT_ACCOUNT, DeliveryContext
from antiphon.domain.telling import Cause, sentence
from antiphon.domain.voice import Interim
from antiphon.engine.access.send_policy import chat_type
from antiphon.engine.deliveries import outbox
from antiphon.engine.deliveries.outbox import Origin, Outgoing
from antiphon.policy.voices import Voices
from antiphon.store import channel_groups
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.database import Query, Transaction
from antiphon.store.people import find_standing_of_account, list_owners_accounts

TOLD = "told"
"""The code of the event that says what a place was told in place of a reply."""


def may_speak(run: Run, place: DeliveryContext) -> bool:
    """Whether the run's own words go to the place."""
    return run.purpose.speaks_for_itself and place.is_outside


async def say_step(tx: Transaction, run: Run, place: DeliveryContext, outgoing: Outgoing, *, seq: int) -> None:
    """Queues the text of the run's step of that `seq` for its place, in the unit that records the step."""
    if not may_speak(run, place):
        return
    queued = await outbox.enqueue(tx, run, place, outgoing, step=seq)
    if queued is not None and queued.got is PlaceGot.SENT and run.place_got is not PlaceGot.SENT:
        await ledger.change(tx, run.id, {"place_got": PlaceGot.SENT.value})


async def say_left_out(tx: Transaction, run: Run, place: DeliveryContext, event: NewEvent, *, seq: int) -> None:
    """Tells the run's place that an image is left out of prompts, in the unit that records it, so once."""
    if may_speak(run, place):
        outgoing = Outgoing(text=IMAGE_NOT_SEEN, made_of=event.classification)
        await outbox.enqueue(tx, run, place, outgoing, step=seq)


async def sends_interim(query: Query, run: Run, place: DeliveryContext, voices: Voices) -> bool:
    """Whether texts of steps before the last go to the place: unless set, only to direct chats."""
    interim = voices.at(place).interim
    if interim is not None:
        return interim is Interim.SEND
    session = await rows.find_by_row(query, SessionRow(run.session))
    if session is None or chat_type(session) != ChatType.DIRECT:
        return False
    assert place.channel is not None and place.to is not None
    account = place.account_id or DEFAULT_ACCOUNT
    return await channel_groups.find_by_address(query, place.channel, account, place.to) is None


async def tell_place(
    tx: Transaction, run: Run, place: DeliveryContext, cause: Cause, *, made_of: Classification
) -> None:
    """Queues the sentence that says why the run gives no reply, and stores in the log that it is told.

    No prompt holds it. An owner's own words are for their private chat alone.
    """
    assert place.channel is not None and place.to is not None
    standing = await find_standing_of_account(tx, place.channel, place.account_id or "", place.to)
    text = sentence(cause, None if standing is None else standing.role, code=run.code)
    outgoing = Outgoing(text=text, made_of=made_of, cause=cause)
    queued = await outbox.enqueue(tx, run, place, outgoing)
    assert queued is not None
    data: JsonObject = {"code": TOLD, "cause": cause.value, "error": text}
    data |= {"deliveryId": queued.id, "channel": place.channel, "to": place.to}
    origin = Origin(session=SessionRow(run.session), incarnation=run.session_id, run_id=run.id)
    await outbox.tell(tx, origin, EventType.ERROR, data, made_of=made_of)


async def tell_owners(tx: Transaction, told: Delivery) -> bool:
    """Queues for the private chats of owners that somebody elsewhere got no reply; False if no owner has one."""
    assert told.cause is not None
    accounts = await list_owners_accounts(tx)
    where = f"{told.session_key}: " if told.session_key is not None else ""
    text = f"{where}{sentence(told.cause, PersonRole.OWNER)}"
    for place in dict.fromkeys(private_chat(account.identity) for account in accounts):
        name = f"owner {told.id} {place.channel} {place.account_id} {place.to}"
        await outbox.enqueue_notice(tx, place, text, name=name, made_of=told.made_of)
    return bool(accounts)
