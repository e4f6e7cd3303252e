"""Begins threads for sub-agents on the platforms that have them. Contract: spawn 4."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import anyio
from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.delivery import DeliveryFailed
from antiphon.domain.errors import Conflict, Unavailable
from antiphon.domain.message import UserMessage
from antiphon.domain.run import Run
from antiphon.domain.session import DeliveryContext
from antiphon.engine.access.recipients import account_of
from antiphon.policy.system import system_grant
from antiphon.store import events
from antiphon.store.database import Query
from antiphon.store.deliveries import ChannelAccount

THREAD_FAILED = "thread_failed"


class WantedThread(Struct, frozen=True, kw_only=True):
    """A thread that is to be begun."""

    place: DeliveryContext
    """The chat; perhaps a thread of it, beside which the new one stands."""
    message_id: str | None
    """The platform's id of the message under which it stands, as the adapter gave it; None for one of its own."""
    title: str


@runtime_checkable
class ThreadMaker(Protocol):
    """The sender of an account that can begin threads, as `channels/channel.py` says."""

    @property
    def timeout_seconds(self) -> float: ...

    async def open_thread(self, place: DeliveryContext, message_id: str | None, title: str) -> str: ...


class ThreadTaken(Exception):
    """The thread is bound to another sub-agent. Nothing of the unit was stored."""


class ThreadOpener:
    """Reaches the platforms that this process sends to."""

    def __init__(self, senders: Mapping[ChannelAccount, object]) -> None:
        self._senders = senders

    async def open(self, wanted: WantedThread) -> DeliveryContext:
        """The place in the new thread. Called again for the same message it finds the same thread, where platforms do.

        Raises `Unavailable` or `Conflict` (`thread_failed`) if the platform begins none.
        """
        place = wanted.place
        assert place.channel is not None
        sender = self._senders.get(ChannelAccount(place.channel, account_of(place)))
        if not isinstance(sender, ThreadMaker):
            raise Conflict(
                f"Thread was not begun: {place.channel} begins no threads. Spawn without thread.", code=THREAD_FAILED
            )
        try:
            with anyio.fail_after(sender.timeout_seconds):
                thread = await sender.open_thread(place, wanted.message_id, wanted.title)
        except DeliveryFailed as error:
            said = f"Thread was not begun: {error.message} Spawn without thread."
            raise (Conflict if error.is_permanent else Unavailable)(said, code=THREAD_FAILED) from error
        except TimeoutError as error:
            said = "Thread was not begun: the platform did not answer in time. Try again, or spawn without thread."
            raise Unavailable(said, code=THREAD_FAILED) from error
        return replace(place, thread_id=thread)


async def find_newest_there(query: Query, origin: Run | None, place: DeliveryContext) -> str | None:
    """The platform's id of the newest message of the run that came from the place; None if none did."""
    if origin is None:
        return None
    found = await events.find_events(query, system_grant(origin.session), [origin.newest_seq])
    message = None if origin.newest_seq not in found else found[origin.newest_seq].message
    came_by = f"{place.channel}:{account_of(place)}:"
    if not isinstance(message, UserMessage) or not message.message_id.startswith(came_by):
        return None
    return message.message_id.removeprefix(came_by)
