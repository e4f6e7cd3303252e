"""The entry for all that channels bring: takes in each message, press and change in one unit.

Only after the unit has committed may the platform be told that the message was taken in. The same message again gets
its first answer, even if its chat was routed elsewhere meanwhile. Contract: channels 1, access 3, groups 1.
"""

from collections import OrderedDict

from msgspec.structs import replace

from antiphon.clock import Clock
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import Ids
from antiphon.domain.inbound import ButtonPress, ChatChange, Inbound
from antiphon.domain.keys import SessionKey
from antiphon.engine.chats.accounts import AccountLease, LeaseLost
from antiphon.engine.chats.changes import take_change
from antiphon.engine.chats.entry import DrawnIds, SessionMoved, Uploaded, target_of
from antiphon.engine.chats.occasion import Occasion
from antiphon.engine.chats.pairing import draw_code
from antiphon.engine.chats.presses import TakePress, find_pressed, take_press
from antiphon.engine.chats.take_in import Foreseen, Received, Stale, TakeIn, foresee, take_in
from antiphon.engine.chats.uploads import prepare, write_files
from antiphon.engine.chats.who import identity_of
from antiphon.engine.refusal import Refusal
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.request_ids import new_run_id
from antiphon.store.database import Database, Named

MOST_TRIES = 5
TOLD_MS = 60_000
"""A sender whose messages are not taken in is told so once in this time."""
MAX_TOLD = 1_000


class Reception:
    """Adapters call it for each update, in their order, and keep nothing themselves."""

    def __init__(self, database: Database, rules: Rules, workspaces: Workspaces, *, clock: Clock, ids: Ids) -> None:
        self._database = database
        self._rules = rules
        self._workspaces = workspaces
        self._clock = clock
        self._ids = ids
        self._told: OrderedDict[str, int] = OrderedDict()
        """When senders were told that a message was not taken in."""

    async def will_post(self, inbound: Inbound) -> bool:
        """Whether the message would be posted now, so that its files are worth fetching. Raises `Unavailable`."""
        foreseen = await self._database.read(foresee, self._rules, inbound, self._clock.now_ms())
        return foreseen.is_entering

    def must_wait(self, error: Unavailable) -> bool:
        """Whether the store fails for everybody. Otherwise what this message needs is damaged, and others go on."""
        return error.code != "store_corrupt" or self._database.failure is not None

    async def receive(self, inbound: Inbound, lease: AccountLease | None = None) -> Received:
        """Takes a message in. Without a lease, as for a platform that posts to the gateway, any process may.

        Raises `LeaseLost`, after which the loop ends, and `Unavailable`, after which it tries again.
        """
        sender = str(identity_of(inbound.place, inbound.sender))
        drawn = self._draw()
        command = TakeIn(
            inbound=inbound,
            lease=lease,
            rules=self._rules,
            drawn=drawn,
            occasion=self._occasion(drawn),
            pairing=draw_code(self._ids),
            was_told=drawn.at_ms - self._told.get(sender, -TOLD_MS) < TOLD_MS,
        )
        received = await self._take_in(command)
        if received.refused is not None and not command.was_told:
            self._told.pop(sender, None)
            self._told[sender] = drawn.at_ms
            while len(self._told) > MAX_TOLD:
                self._told.popitem(last=False)
        return received

    async def press(self, press: ButtonPress, lease: AccountLease | None = None) -> Received:
        """Decides as the person who pressed; the answer's `toast` says what became of it. Raises like `receive`."""
        drawn = self._draw()
        command = TakePress(press=press, lease=lease, occasion=self._occasion(drawn), drawn=drawn)
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
        return _current(await self._database.run(take_change, change, lease, self._occasion(self._draw())), lease)

    async def _take_in(self, command: TakeIn) -> Received:
        key: SessionKey | None = None
        for _ in range(MOST_TRIES):
            foreseen = await self._database.read(foresee, self._rules, command.inbound, command.drawn.at_ms)
            key = key or foreseen.key
            uploaded = await self._upload(command, foreseen)
            unit = command if uploaded is None else replace(command, uploaded=uploaded)
            locked = () if key is None else (target_of(key),)
            try:
                return _current(await self._database.run(take_in, unit, key, sessions=locked), command.lease)
            except SessionMoved as moved:
                key = moved.key
        raise _unsettled()

    async def _upload(self, command: TakeIn, foreseen: Foreseen) -> Uploaded | None:
        """Writes the message's files before the message that tells of them; None if there are none."""
        inbound = command.inbound
        if not inbound.files or not foreseen.is_entering or foreseen.key is None:
            return None
        locked = (target_of(foreseen.key),)
        session = await self._database.run(prepare, self._rules, inbound, command.drawn, sessions=locked)
        if isinstance(session, Refusal):
            return None  # the message is refused for the same reason
        return await write_files(self._workspaces, session, inbound)

    def _draw(self) -> DrawnIds:
        return DrawnIds(
            random=self._ids.random_hex(12),
            run_id=new_run_id(self._ids),
            now=self._clock.now(),
            at_ms=self._clock.now_ms(),
        )

    def _occasion(self, drawn: DrawnIds) -> Occasion:
        return Occasion(rules=self._rules, now=drawn.now, at_ms=drawn.at_ms, drawn=self._ids.random_hex(64))


def _unsettled() -> Unavailable:
    return Unavailable("Chat is routed elsewhere again and again. Try once more.", code="store_busy")


def _current(received: Received | Stale, lease: AccountLease | None) -> Received:
    if isinstance(received, Stale):
        raise LeaseLost(f"Another process serves {lease}.")
    return received
