"""Threads of sub-agents: where they are begun, and whose they are from then on. Contract: spawn 4."""

from msgspec.structs import replace

from antiphon.domain.classification import PUBLIC
from antiphon.domain.errors import Conflict, Invalid
from antiphon.domain.run import Run
from antiphon.domain.session import DeliveryContext, Session
from antiphon.engine.access.bindings import bind, channels_with_threads, limits_at
from antiphon.engine.access.caller import Caller, context_of
from antiphon.engine.access.exits import Leaving, leave
from antiphon.engine.access.places import find_address
from antiphon.engine.deliveries import outbox
from antiphon.engine.deliveries.threads import THREAD_FAILED, ThreadTaken, WantedThread, find_newest_there
from antiphon.engine.rules import Rules
from antiphon.policy.decision import Deny
from antiphon.store.database import Query, Transaction
from antiphon.store.people import find_standing

UNTITLED = "Sub-agent"
NOT_BEGUN = "No sub-agent works in this thread: it was refused after the thread was begun."


async def want_thread(
    query: Query, caller: Caller, origin: Run | None, parent: Session, *, label: str | None, rules: Rules
) -> WantedThread:
    """The thread for a child that may be. Raises like `place_of_thread`, and `Conflict` where nothing may be said."""
    place = place_of_thread(origin, parent, rules)
    words = Leaving(parent, place, context_of(caller, parent))
    title = label if label and not isinstance(await leave(query, words, rules), Deny) else UNTITLED
    may_speak = await leave(query, replace(words, made_of=PUBLIC), rules)
    if isinstance(may_speak, Deny):
        raise Conflict(f"Thread was not begun: {may_speak.reason} Spawn without thread.", code=THREAD_FAILED)
    return WantedThread(place=place, message_id=await find_newest_there(query, origin, place), title=title)


def place_of_thread(origin: Run | None, parent: Session, rules: Rules) -> DeliveryContext:
    """The chat in which the child gets its thread. Raises `Invalid` (`unsupported`) where there are none."""
    place = outbox.answers_to(origin, parent.delivery)
    if place is not None and limits_at(rules, place) is not None:
        return place
    having = channels_with_threads(rules)
    where = "this conversation is not in a chat of a channel" if place is None else f"{place.channel} has none"
    others = f"Channels with threads: {', '.join(having)}. " if having else "No connected channel has them. "
    raise Invalid(f"Threads are not supported here: {where}. {others}Spawn without thread.", code="unsupported")


async def bind_thread(
    tx: Transaction, thread: DeliveryContext, child: Session, *, caller: Caller, rules: Rules
) -> None:
    """Raises `ThreadTaken` if another child has the thread, and then nothing of the unit is stored."""
    limits = limits_at(rules, thread)
    assert limits is not None
    address = await find_address(tx, rules, thread)
    by = (await find_standing(tx, caller.principal)).principal
    if not await bind(tx, address, thread, child.row, key=child.key, by=by, limits=limits):
        raise ThreadTaken


async def say_not_begun(tx: Transaction, caller: Caller, thread: DeliveryContext) -> None:
    """Says in a thread that was begun that its sub-agent was refused."""
    await outbox.enqueue_notice(tx, thread, NOT_BEGUN, name=f"not begun {caller.call_id} {thread.thread_id}")
