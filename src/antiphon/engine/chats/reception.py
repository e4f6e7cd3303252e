"""The entry for all that channels bring: takes in each message, press and change in one unit.

Only after the unit has committed may the platform be told that the message was taken in. The same message again gets
its first answer, even if its chat was routed elsewhere meanwhile. Contract: channels 1, access 3, groups 1.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

import anyio
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from antiphon.clock import Clock
from antiphon.domain.errors import REFUSALS, Unavailable
from antiphon.domain.inbound import ButtonPress, ChatChange, Inbound
from antiphon.domain.joining import joined
from antiphon.domain.keys import SessionKey
from antiphon.domain.session import DeliveryContext
from antiphon.engine.access.recipients import account_of
from antiphon.engine.access.who import identity_of
from antiphon.engine.chats.accounts import AccountLease, LeaseLost
from antiphon.engine.chats.changes import take_change
from antiphon.engine.chats.entry import SessionMoved, Uploaded, target_of
from antiphon.engine.chats.holding import GoOn, count_held, ready
from antiphon.engine.chats.owners import tell_of_passed_over
from antiphon.engine.chats.presses import TakePress, find_pressed, take_press
from antiphon.engine.chats.take_in import Foreseen, Received, Stale, TakeIn, command_in, foresee, take_in
from antiphon.engine.chats.uploads import prepare, remove_files, write_files
from antiphon.engine.deliveries.acknowledgements import MessageAtWork
from antiphon.engine.deliveries.outbox import enqueue_notice
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.store import codec, held_messages
from antiphon.store.arrivals import ArrivalOutcome
from antiphon.store.channel_accounts import AccountName
from antiphon.store.database import Database, Named, Transaction
from antiphon.store.held_messages import HeldMessage

MOST_TRIES = 5
MOST_BEFORE = 5
"""Messages that a command lets be posted before it acts."""
TOLD_MS = 60_000
"""A sender whose messages are not taken in is told so once in this time."""
MAX_TOLD = 1_000
LOOK_SECONDS = 0.5
"""How long a look for messages that wait counts for all accounts."""


class Reception:
    """Adapters call it for each update, in their order, and keep nothing themselves."""

    def __init__(
        self,
        database: Database,
        rules: Rules,
        workspaces: Workspaces,
        *,
        clock: Clock,
        acknowledge: Callable[[MessageAtWork], None] | None = None,
    ) -> None:
        self._database = database
        self._rules = rules
        self._workspaces = workspaces
        self._clock = clock
        self._acknowledge = acknowledge
        self._told: OrderedDict[str, ToldSender] = OrderedDict()
        """Senders who were told that a message was not taken in."""
        self._woken = asyncio.Event()
        self._looking = anyio.Lock()
        self._looked_at: float | None = None
        self._dues: Mapping[AccountName, int] = {}
        """When the first message of each account that waits is due, as that look found it."""

    def is_of_message(self, error: Exception) -> bool:
        """Whether only this message fails, by a bug or because its chat is damaged; then those behind it go on.

        Otherwise the store fails for everybody, or another process serves the account.
        """
        if isinstance(error, Unavailable):
            return error.code == "store_corrupt" and self._database.failure is None
        return not isinstance(error, LeaseLost)

    async def receive(self, inbound: Inbound, lease: AccountLease | None = None) -> Received:
        """Takes a message in. Without a lease, as for a platform that posts to the gateway, any process may.

        One with files to fetch waits for them, and those after it in its chat wait behind it (`HeldMessages`).
        Raises `LeaseLost`, after which the loop ends, and `Unavailable`, after which it tries again.
        """
        if command_in(inbound, None) is not None:
            await self._post_before(inbound, lease)
        command = self._command(inbound, lease)
        if inbound.unfetched:
            command = replace(command, free_bytes=await to_thread.run_sync(self._workspaces.free_bytes))
        received = await self._take_in(command)
        if received.refused is not None:
            self._note_told(inbound, command)
        if received.outcome is ArrivalOutcome.HELD:
            self.wake()
        return received

    async def _post_before(self, inbound: Inbound, lease: AccountLease | None) -> None:
        """Posts what waits in the chat for nothing but parts: a command acts at once, and after what was written."""
        for _ in range(MOST_BEFORE):
            held = await self._database.read(held_messages.find_first_in, inbound.place)
            if held is None or not held.open_until:
                return
            message = joined(codec.inbound(held.message))
            if message.unfetched or (await self.go_on(held, message, lease)).outcome is ArrivalOutcome.HELD:
                return

    async def go_on(self, held: HeldMessage, inbound: Inbound, lease: AccountLease | None) -> Received:
        """Posts a message that waited, with the files that were fetched. Raises like `receive`."""
        return await self._take_in(replace(self._command(inbound, lease), held=held, was_told=False))

    async def list_held(self, lease: AccountLease) -> list[HeldMessage]:
        """The messages of the account that may be posted now, one of each place. Raises `Unavailable`."""
        if await self._first_due(lease) > self._clock.now_ms():
            return []
        now_ms, read = self._clock.now_ms(), self._database.read
        return [held for name in lease.names for held in await read(held_messages.list_first, name, now_ms)]

    async def count_held(self, held: HeldMessage, inbound: Inbound) -> bool:
        """Counts a message that came late; False if its sender's pace lets it go on only later."""
        command = GoOn(held=held, inbound=inbound, rules=self._rules)
        return await self._database.run(count_held, command)

    async def ready(self, held: HeldMessage, inbound: Inbound) -> Inbound | None:
        """The message with the files to fetch; None if it would only be put off again once they are there."""
        command = GoOn(held=held, inbound=inbound, rules=self._rules)
        return await self._database.run(ready, command)

    async def pause_before_next(self, lease: AccountLease) -> float:
        """Seconds until another message of the account is due; infinite if none waits."""
        now_ms, first_ms = self._clock.now_ms(), await self._first_due(lease)
        if first_ms > now_ms:
            return (first_ms - now_ms) / 1000
        dues = [await self._database.read(held_messages.next_due, name, now_ms) for name in lease.names]
        due_ms = min((each for each in dues if each is not None), default=None)
        return math.inf if due_ms is None else (due_ms - now_ms) / 1000

    async def _first_due(self, lease: AccountLease) -> float:
        """When the first message of the account that waits is due; infinite if none waits.

        One look serves all accounts of the process for `LOOK_SECONDS`, unless a message begins or ends to wait here.
        """
        async with self._looking:
            if self._looked_at is None or time.monotonic() - self._looked_at >= LOOK_SECONDS:
                self._looked_at = time.monotonic()
                self._dues = await self._database.read(held_messages.list_dues)
            return min((self._dues.get(name, math.inf) for name in lease.names), default=math.inf)

    async def postpone(self, held: HeldMessage, due_ms: int) -> None:
        await self._database.run(held_messages.postpone, held.id, due_ms)

    async def give_up(self, held: HeldMessage) -> None:
        await self._database.run(held_messages.delete, held.id)

    def wake(self) -> None:
        """Lets `wait_held` return, and has looked anew what waits."""
        self._looked_at = None
        self._woken.set()

    async def wait_held(self, seconds: float) -> None:
        """Returns when a message has to wait, or after that time."""
        with anyio.move_on_after(seconds):
            await self._woken.wait()
        self._woken.clear()

    async def tell_numbers(self) -> None:
        """Tells senders how many more messages were not taken in since they were told of one."""
        at_ms = self._clock.now_ms()
        for sender, told in list(self._told.items()):
            if told.more and not told.is_new(at_ms):
                self._told[sender] = replace(told, at_ms=at_ms, more=0)
                await self._database.run(tell_number, told)

    def _command(self, inbound: Inbound, lease: AccountLease | None) -> TakeIn:
        told = self._told.get(_sender_of(inbound))
        return TakeIn(
            inbound=inbound,
            lease=lease,
            rules=self._rules,
            was_told=told is not None and told.is_new(self._clock.now_ms()),
        )

    def _note_told(self, inbound: Inbound, command: TakeIn) -> None:
        sender, at_ms = _sender_of(inbound), self._clock.now_ms()
        told = self._told.pop(sender, None)
        if told is None or not command.was_told:
            more = 0 if told is None else told.more
            told = ToldSender(place=inbound.place, at_ms=at_ms, more=more)
        elif inbound.is_meant:
            told = replace(told, more=told.more + 1)
        self._told[sender] = told
        while len(self._told) > MAX_TOLD:
            self._told.popitem(last=False)

    async def press(self, press: ButtonPress, lease: AccountLease | None = None) -> Received:
        """Decides as the person who pressed; the answer's `toast` says what became of it. Raises like `receive`."""
        command = TakePress(press=press, lease=lease, rules=self._rules)
        session = await self._database.read(find_pressed, press)
        locked: tuple[Named, ...] = () if session is None else (session,)
        for _ in range(MOST_TRIES):
            try:
                return _current(await self._database.run(take_press, command, sessions=locked), lease)
            except SessionMoved as moved:
                command, locked = replace(command, foreseen=moved.key), (target_of(moved.key),)
        raise _unsettled()

    async def change(self, change: ChatChange, lease: AccountLease | None = None) -> Received:
        """Notes what happened to a chat: owners are asked about a new group. Raises like `receive`."""
        return _current(await self._database.run(take_change, change, lease, self._rules), lease)

    async def tell_passed_over(self, lease: AccountLease, number: int, *, name: str) -> None:
        """Tells owners that so many messages of an outage are not taken in, as `catch_up` says.

        They are told once by that name, such as the position of the newest one. Raises `Unavailable`.
        """
        place = DeliveryContext(channel=lease.channel, account_id=lease.account)
        await self._database.run(_tell_passed_over, place, number, name)

    async def _take_in(self, command: TakeIn) -> Received:
        key: SessionKey | None = None
        for _ in range(MOST_TRIES):
            foreseen = await self._database.read(foresee, self._rules, command.inbound)
            key = key or foreseen.key
            uploaded = await self._upload(command, foreseen)
            unit = command if uploaded is None else replace(command, uploaded=uploaded)
            locked = () if key is None else (target_of(key),)
            try:
                received = _current(await self._database.run(take_in, unit, key, sessions=locked), command.lease)
            except SessionMoved as moved:
                key = moved.key
                continue
            if uploaded is not None and received.outcome is not ArrivalOutcome.POSTED:
                await remove_files(uploaded)
            self._note_answered(command.inbound, received)
            return received
        raise _unsettled()

    def _note_answered(self, inbound: Inbound, received: Received) -> None:
        posted = received.posted
        if self._acknowledge is None or posted is None or posted.run_id is None or received.is_repeated:
            return
        self._acknowledge(MessageAtWork(inbound.place, inbound.platform_id, posted.session, posted.run_id))

    async def _upload(self, command: TakeIn, foreseen: Foreseen) -> Uploaded | None:
        """Writes the message's files before the message that tells of them; None if there are none."""
        inbound = command.inbound
        if not inbound.files or not foreseen.is_entering or foreseen.key is None:
            return None
        locked = (target_of(foreseen.key),)
        try:
            session = await self._database.run(prepare, command, sessions=locked)
        except REFUSALS:
            return None  # the message is refused for the same reason
        return await write_files(self._workspaces, session, inbound)


class ToldSender(Struct, frozen=True, kw_only=True):
    """That a sender was told of a message that was not taken in."""

    place: DeliveryContext
    at_ms: int
    more: int
    """How many more there were since."""

    def is_new(self, at_ms: int) -> bool:
        return at_ms - self.at_ms < TOLD_MS


async def _tell_passed_over(tx: Transaction, place: DeliveryContext, number: int, name: str) -> None:
    await tell_of_passed_over(tx, place, number, name=name)


async def tell_number(tx: Transaction, told: ToldSender) -> None:
    text = f"{told.more} more of your messages were not taken in."
    place = told.place
    name = f"refused {place.channel} {account_of(place)} {place.to} {place.thread_id} {tx.now_ms}"
    await enqueue_notice(tx, place, text, name=name)


def _sender_of(inbound: Inbound) -> str:
    return str(identity_of(inbound.place, inbound.sender))


def _unsettled() -> Unavailable:
    return Unavailable("Chat is routed elsewhere again and again. Try once more.", code="store_busy")


def _current(received: Received | Stale, lease: AccountLease | None) -> Received:
    if isinstance(received, Stale):
        raise LeaseLost(f"Another process serves {lease}.")
    return received
