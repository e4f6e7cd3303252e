"""Messages that wait: their files are fetched, and they are posted, beside the channel's updates. Contract: channels 1.

In each chat one after the other, so that its messages keep their order. What waits is stored, so that another process
goes on after a kill. Nothing that is wrong with one chat holds up another one.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta

import anyio

from antiphon.clock import Clock
from antiphon.domain.errors import Unavailable
from antiphon.domain.inbound import Inbound
from antiphon.domain.joining import joined
from antiphon.engine.chats.accounts import AccountLease, LeaseLost, milliseconds_of
from antiphon.engine.chats.reception import Reception
from antiphon.store import codec
from antiphon.store.held_messages import MOST_LISTED, HeldId, HeldMessage

logger = logging.getLogger(__name__)

Fetch = Callable[[Inbound], Awaitable[Inbound]]
"""Gives the message with its files, or with a sentence for each that cannot be had; fetches each for a bounded time."""
MOST_AT_ONCE = 4
"""Messages whose files are fetched at the same time, per process."""
MOST_OF_GUESTS = MOST_AT_ONCE - 1
"""Of people with a share; the rest is the owner's."""
MOST_OF_ONE = 2
"""Of one person with a share, in different chats."""
TICK_SECONDS = 1.0
PAUSE = timedelta(seconds=30)
"""After a failure that is a bug's."""
PATIENCE = timedelta(hours=1)
"""How old a message that fails by a bug may become; then it is given up, and those behind it go on."""


class HeldMessages:
    """Runs in the process that holds the account's lease."""

    def __init__(self, reception: Reception, clock: Clock) -> None:
        self._reception = reception
        self._clock = clock
        self._working: dict[HeldId, HeldMessage] = {}
        self._ended: set[HeldId] = set()
        """Worked on while the rows were read, which may list them still."""

    async def serve(self, lease: AccountLease, fetch: Fetch) -> None:
        """Posts what waits, whenever it is due, until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                self._ended.clear()
                pause = TICK_SECONDS
                try:
                    due = await self._reception.list_held(lease)
                    pause = min(pause, await self._reception.pause_before_next(lease))
                    await self._reception.tell_numbers()
                except Unavailable:
                    due = []
                waiting = (held for held in due if held.id not in self._ended)
                for held in choose(waiting, self._working.values()):
                    self._working[held.id] = held
                    tasks.start_soon(self._go_on, held, lease, fetch)
                await self._reception.wait_held(pause)

    async def _go_on(self, held: HeldMessage, lease: AccountLease, fetch: Fetch) -> None:
        try:
            await self._post(held, lease, fetch)
        except LeaseLost:
            pass  # the loop of the account learns of it, too
        except Exception as error:
            if self._reception.is_of_message(error):
                await self._put_off(held)
            else:
                await anyio.sleep(TICK_SECONDS)
        finally:
            del self._working[held.id]
            self._ended.add(held.id)
            self._reception.wake()

    async def _post(self, held: HeldMessage, lease: AccountLease, fetch: Fetch) -> None:
        inbound = joined(codec.inbound(held.message))
        if not held.is_counted and not await self._reception.count_held(held, inbound):
            return
        if inbound.unfetched:
            ready = await self._reception.ready(held, inbound)
            if ready is None:
                return
            inbound = await fetch(ready)
        await self._reception.go_on(held, inbound, lease)

    async def _put_off(self, held: HeldMessage) -> None:
        """Tries again later what failed by a bug or by damage, and gives it up once it is old."""
        now_ms = self._clock.now_ms()
        is_over = now_ms - held.held_at >= milliseconds_of(PATIENCE)
        logger.exception(
            "Message that waited failed", extra={"action": "held_failed", "held": held.id, "is_given_up": is_over}
        )
        try:
            if is_over:
                await self._reception.give_up(held)
            else:
                await self._reception.postpone(held, now_ms + milliseconds_of(PAUSE))
        except Unavailable:
            await anyio.sleep(TICK_SECONDS)


def choose(due: Iterable[HeldMessage], working: Iterable[HeldMessage]) -> list[HeldMessage]:
    """The messages whose turn it is, besides those that are worked on; `due` has the owner's first."""
    at_work = list(working)
    busy = {held.id for held in at_work}
    chosen = list[HeldMessage]()
    for held in due:
        if not held.files:  # it takes no time, and so nobody's place
            if held.id not in busy and len(busy) + len(chosen) < MOST_LISTED:
                chosen.append(held)
            continue
        taken = [each for each in (*at_work, *chosen) if each.files]
        of_guests = [each for each in taken if not each.is_favoured]
        is_full = not held.is_favoured and (
            len(of_guests) >= MOST_OF_GUESTS
            or sum(each.principal == held.principal for each in of_guests) >= MOST_OF_ONE
        )
        if held.id not in busy and len(taken) < MOST_AT_ONCE and not is_full:
            chosen.append(held)
    return chosen
