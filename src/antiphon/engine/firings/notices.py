"""Tells the maker of a task, and owners, that it paused or ended by itself. Contract: tasks 1, 2."""

from antiphon.domain.event import EventType
from antiphon.domain.message import JsonObject
from antiphon.domain.person import person_of, private_chat
from antiphon.domain.session import DeliveryContext
from antiphon.domain.stored_task import StoredTask
from antiphon.domain.task import Why
from antiphon.domain.task_words import stopped_words
from antiphon.engine.deliveries import outbox
from antiphon.engine.deliveries.outbox import Origin
from antiphon.store import people
from antiphon.store import sessions as rows
from antiphon.store.database import Query, Transaction


async def tell(tx: Transaction, task: StoredTask, why: Why, *, cause: str) -> None:
    """Queues the words for the place of the task, else for the maker's own chats; and stores them in the task's log.

    Owners are told too if rights or clearances were lost. `cause` distinguishes this from other times.
    """
    text = stopped_words(task, why)
    place = None if why in (Why.PLACE, Why.PLACE_GONE) else task.place
    places = await _chats_of(tx, task) if place is None else [place]
    if why in (Why.MAKER, Why.PLACE, Why.PLACE_GONE):
        places += [private_chat(account.identity) for account in await people.list_owners_accounts(tx)]
    for place in dict.fromkeys(places):
        name = f"task {task.id} {why.value} {cause} {place.channel} {place.account_id} {place.to} {place.thread_id}"
        await outbox.enqueue_notice(tx, place, text, name=name, made_of=task.made_of)
    session = await rows.find_by_key(tx, task.key)
    if session is None:
        return
    origin = Origin(session=session.row, incarnation=session.id, run_id=None)
    data: JsonObject = {"code": f"task_{why.value}", "taskId": task.id, "error": text}
    await outbox.tell(tx, origin, EventType.ERROR, data, made_of=task.made_of)


async def _chats_of(query: Query, task: StoredTask) -> list[DeliveryContext]:
    """The private chats of the maker."""
    person = person_of(task.maker)
    if person is None:
        return []
    return [private_chat(identity) for identity in (await people.find_identities(query, [person]))[person]]
