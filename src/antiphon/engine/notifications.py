"""Tells people, through accounts that do only that, how much waits for them. Contract: approvals 4, channels 1.

A notification is one fixed sentence with a number and the address of the page. Requests themselves stand in it only
where the account's clearance lets them. What is in the newest notification of a person is durable: something new is
what came after that one was written.
"""

import logging
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import anyio

from antiphon.clock import Clock
from antiphon.domain.channel_form import ChannelForm
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.delivery import Delivery, DeliveryStatus
from antiphon.domain.own_text import OwnText, own_text
from antiphon.domain.person import person_principal
from antiphon.domain.request_text import draw_request
from antiphon.engine.access.reach import Rights
from antiphon.engine.deliveries.outbox import name_of
from antiphon.engine.deliveries.requests import names_in
from antiphon.engine.overview import Needs, find_needs
from antiphon.engine.rules import Rules
from antiphon.policy.exit import takes
from antiphon.policy.notified import NotifiedPerson
from antiphon.policy.sinks import Sinks
from antiphon.store import deliveries, people
from antiphon.store.codec import moment
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.deliveries import ChannelAccount, NewDelivery
from antiphon.trouble import Setbacks, Trouble

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 3.0
PAUSE: Final = timedelta(minutes=1)
"""The least time between two notifications of a person by one account."""
MOST_REQUESTS: Final = 3
"""Requests that a notification holds where it may."""
_FORM: Final = ChannelForm(longest=1_500)
"""How much of each."""
_MEANS: Final = "Notifications wait until this is over; the page shows what waits."


class Notifications:
    """The notifications of the accounts that this process serves."""

    def __init__(
        self,
        database: Database,
        rules: Rules,
        clock: Clock,
        *,
        accounts: Collection[ChannelAccount],
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._database = database
        self._rules = rules
        self._clock = clock
        self._served = [each for each in rules.notified if ChannelAccount(each.channel, each.account) in accounts]
        self._look_seconds = look_seconds
        self._looking = Trouble(logger, "Looking for what waits", action="notify_failed", means=_MEANS)
        self._setbacks = Setbacks(logger, "Notification", action="notification_broken", means=_MEANS)

    async def run(self) -> None:
        """Looks every few seconds, until cancelled."""
        while self._served:
            try:
                await self.look()
                self._looking.worked()
            except Exception as error:
                self._looking.failed(error)
            await anyio.sleep(self._look_seconds)

    async def look(self) -> None:
        """Queues a notification for each person for whom something new waits."""
        for each in self._served:
            if self._setbacks.rests(each.place):
                continue
            with self._setbacks.attempt(each.place, channel=each.channel, account=each.account):
                found = await self._database.read(look_for, each, self._rules, self._clock.now_ms())
                if found.change:
                    await self._database.run(notify, each, self._rules)


class Waiting(NamedTuple):
    """What waits for a person, beside the newest notification."""

    needs: Needs
    last: Delivery | None
    change: bool
    """Whether a notification is to be queued, or the queued one is to say something else."""


async def look_for(query: Query, notified: NotifiedPerson, rules: Rules, now_ms: int) -> Waiting:
    needs = await find_needs(query, Rights(person_principal(notified.person), rules), now_ms)
    last = await deliveries.find_newest_at(query, notified.place)
    if last is not None and last.status is DeliveryStatus.QUEUED:
        return Waiting(needs, last, _sentence(needs.count, notified) != last.text.partition("\n")[0])
    is_new = any(last is None or at >= last.created_at for at in _times(needs, rules))
    is_early = last is not None and moment(now_ms) < (last.ended_at or last.created_at) + PAUSE
    return Waiting(needs, last, is_new and not is_early)


async def notify(tx: Transaction, notified: NotifiedPerson, rules: Rules) -> None:
    """Queues the notification, or changes the one that waits; it goes if nothing waits for the person any more."""
    await people.hold(tx, notified.person)
    needs, last, change = await look_for(tx, notified, rules, tx.now_ms)
    if not change:
        return
    is_queued = last is not None and last.status is DeliveryStatus.QUEUED
    if last is not None and is_queued and not needs.count:
        await deliveries.delete(tx, last.id)
        return
    words, made_of = await _words(tx, needs, notified, rules)
    new = NewDelivery(
        name=name_of(tx.new_id("notification")),
        session=None,
        incarnation=None,
        run_id=None,
        place=notified.place,
        text=words.text,
        spans=words.spans,
        made_of=made_of,
    )
    if last is not None and is_queued:
        await deliveries.replace_queued(tx, last.id, new, tx.now_ms)
    else:
        await deliveries.insert(tx, new, tx.now_ms)


def _times(needs: Needs, rules: Rules) -> Iterable[datetime]:
    """When each of them came up, as far as that is known."""
    yield from (request.asked_at for request in needs.requests)
    yield from (moment(sender.created_at_ms) for sender in needs.senders)
    yield from (group.created_at for group in needs.groups)
    yield from (task.updated_at for task in needs.tasks)
    own = [each.place for each in rules.notified]
    yield from (dead.ended_at or dead.created_at for dead in needs.dead if dead.place not in own)


def _sentence(count: int, notified: NotifiedPerson) -> str:
    waits = "1 thing waits for you" if count == 1 else f"{count} things wait for you"
    where = "“antiphon open” prints the page's address." if notified.page is None else notified.page
    return f"{waits}: {where}" if notified.page is not None else f"{waits}. {where}"


async def _words(query: Query, needs: Needs, notified: NotifiedPerson, rules: Rules) -> tuple[OwnText, Classification]:
    """The sentence, and the requests that may be read at the place; with what they were made of."""
    sentence, made_of = own_text(_sentence(needs.count, notified)), PUBLIC
    standing = await people.find_standing(query, person_principal(notified.person))
    if not _holds_words(notified, rules.sinks):
        return sentence, made_of
    clearance = rules.sinks.of_place(notified.place, standing.clearance)
    shown: list[OwnText] = []
    for request in needs.requests[:MOST_REQUESTS]:
        if takes(clearance, request.made_of):
            shown.append(draw_request(request, await names_in(query, request), _FORM))
            made_of = made_of.join(request.made_of)
    return own_text(sentence, *(piece for each in shown for piece in ("\n\n", each))), made_of


def _holds_words(notified: NotifiedPerson, sinks: Sinks) -> bool:
    """Whether the settings let anything but the sentence go there."""
    return f"{notified.channel}:{notified.account}" in sinks.channels
