"""Stops programs that answer each other, where a platform does not tell them from people. Contract: channels 1."""

from collections.abc import Sequence
from datetime import timedelta

from antiphon.domain.actor import Principal
from antiphon.domain.errors import Limited
from antiphon.domain.ids import SessionRow
from antiphon.domain.loops import AnsweredTurn, is_loop
from antiphon.domain.session import DeliveryContext
from antiphon.engine.access.recipients import account_of
from antiphon.engine.chats.owners import tell_owners_once
from antiphon.engine.rules import Rules
from antiphon.store import arrivals, runs
from antiphon.store.channel_accounts import AccountName
from antiphon.store.database import Query, Transaction

LOOP = "loop"
REMEMBERED = timedelta(hours=1)
"""How long turns of other threads count."""


async def is_looping(
    query: Query, rules: Rules, place: DeliveryContext, session: SessionRow | None, *, sender: Principal, came_ms: int
) -> bool:
    """Whether the sender answers the session's agent again and again faster than people write.

    The message came then; it may have waited since. Where chats have threads, programs may begin one with each answer,
    so all of the sender's threads count.
    """
    if place.channel is None or not place.is_outside:
        return False
    hasty = rules.chats.form(place.channel).hasty_seconds
    most = rules.chats.quick_turns.get((place.channel, account_of(place)), 0)
    if hasty is None or most == 0:
        return False
    found = [] if session is None else await runs.list_answered(query, session, sender, limit=2 * most)
    if _is_loop(found, came_ms, most, hasty):
        return True
    if place.thread_id is None:
        return False
    where, since = AccountName(place.channel, account_of(place)), came_ms - round(REMEMBERED.total_seconds() * 1000)
    found = await arrivals.list_answered(query, where, sender, since_ms=since, limit=2 * most)
    return _is_loop(found, came_ms, most, hasty)


def _is_loop(found: Sequence[tuple[int, int]], came_ms: int, most: int, hasty: float) -> bool:
    turns = [AnsweredTurn(*each) for each in found]
    return is_loop(turns, came_ms, most=most, hasty_ms=round(hasty * 1000))


def loop_refused(place: DeliveryContext) -> Limited:
    return Limited(
        f"Message was not taken in: it answers the agent faster than people write, as several before it did, so that "
        f"two programs seem to answer each other on {place.channel}. Wait a minute, or set `quick_turns` of the "
        "account to 0.",
        code=LOOP,
    )


async def tell_of_loop(tx: Transaction, place: DeliveryContext) -> None:
    """Tells owners, once a day for each account."""
    text = (
        f"On {place.channel} a program seems to answer the agent's answers: the last messages came faster than people "
        "write. They are not answered any more until somebody takes their time. The setting `quick_turns` says how "
        "many such turns are answered. There may be more: you are told of this once a day."
    )
    await tell_owners_once(tx, place, text, about=f"loop {tx.now.date().isoformat()}")
