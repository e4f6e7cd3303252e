"""Tells the maker of a task, and owners, that it paused or ended by itself. Contract: tasks 1, 2."""

from antiphon.domain.event import EventType
from antiphon.domain.message import JsonObject
from antiphon.domain.person import Identity, person_of
from antiphon.domain.session import DeliveryContext
from antiphon.domain.stored_task import StoredTask
from antiphon.domain.task import MOST_ERRORS, Why
from antiphon.engine.deliveries import outbox
from antiphon.engine.deliveries.outbox import Origin
from antiphon.store import people
from antiphon.store import sessions as rows
from antiphon.store.database import Query, Transaction

_SAID = {
    Why.ERRORS: f"paused: it failed {MOST_ERRORS} times in a row",
    Why.MAKER: "paused: its maker may not do any more what it does, or its agent is gone",
    Why.TOTAL_RUNS: "has ended: it has run as often as it was to",
    Why.STOP_TEXT: "has ended: its reply contained the text that stops it",
    Why.MISSED: "has ended without a run: its time came while nothing could fire it",
    Why.STILL_RUNNING: "has ended without a run: an earlier run had not ended",
    Why.HOURLY_RUNS: "has ended without a run: its runs of the hour were used up",
    Why.DAILY_TOKENS: "has ended without a run: its tokens of the day were used up",
    Why.DAILY_COST: "has ended without a run: its money of the day was used up",
}


async def tell(tx: Transaction, task: StoredTask, why: Why, *, cause: str, at_ms: int) -> None:
    """Queues the words for the place of the task, else for the maker's own chats; and stores them in the task's log.

    Owners are told too if the maker lost rights. `cause` distinguishes this from other times.
    """
    text = said_of(task, why)
    places = [task.place] if task.place is not None else await _chats_of(tx, task)
    if why is Why.MAKER:
        places += [_private(account.identity) for account in await people.list_owners_accounts(tx)]
    for place in dict.fromkeys(places):
        name = f"task {task.id} {why.value} {cause} {place.channel} {place.account_id} {place.to} {place.thread_id}"
        await outbox.enqueue_notice(tx, place, text, name=name, at_ms=at_ms, made_of=task.made_of)
    session = await rows.find_by_key(tx, task.key)
    if session is None:
        return
    origin = Origin(session=session.row, incarnation=session.id, run_id=None)
    data: JsonObject = {"code": f"task_{why.value}", "taskId": task.id, "error": text}
    await outbox.tell(tx, origin, EventType.ERROR, data, made_of=task.made_of, at_ms=at_ms)


def said_of(task: StoredTask, why: Why) -> str:
    """What people read about a task that paused or ended."""
    return f'Task "{task.name}" ({task.id}) {_SAID[why]}.'


async def _chats_of(query: Query, task: StoredTask) -> list[DeliveryContext]:
    """The private chats of the maker."""
    person = person_of(task.maker)
    if person is None:
        return []
    return [_private(identity) for identity in (await people.find_identities(query, [person]))[person]]


def _private(identity: Identity) -> DeliveryContext:
    return DeliveryContext(channel=identity.channel, to=identity.platform_id, account_id=identity.account or None)
