"""What channels bring in, each in one unit: who it is, whether they may write, and to which session.

Only after the unit has committed may the platform be told that the message was taken in. The same message again gets
its first answer, even if its chat was routed elsewhere meanwhile. Contract: channels 1, access 3, groups 1.
"""

from msgspec import Struct

from antiphon.clock import Clock
from antiphon.domain.ids import Ids
from antiphon.domain.inbound import ButtonPress, ChatChange, Inbound
from antiphon.engine.chats.accounts import Lease
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.inbox import Posted
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.store.arrivals import Outcome
from antiphon.store.database import Database


class Received(Struct, frozen=True, kw_only=True):
    """What became of something that a channel brought."""

    outcome: Outcome
    posted: Posted | None = None
    """The message, if it was stored."""
    is_repeated: bool = False
    """Whether it had come before; this is its first answer."""
    toast: str | None = None
    """What the person who pressed a button sees at once."""


class Reception:
    """The entry of channels. Adapters call it for each update, in their order, and keep nothing themselves."""

    def __init__(
        self, database: Database, rules: Rules, workspaces: Workspaces, *, clock: Clock, ids: Ids
    ) -> None:
        self._database = database
        self._rules = rules
        self._workspaces = workspaces
        self._clock = clock
        self._ids = ids

    async def receive(self, inbound: Inbound, lease: Lease | None = None) -> Received:
        """Takes a message in. Without a lease, as for a platform that posts to the gateway, any process may.

        Raises `LeaseLost`, after which the loop ends, and `Unavailable`, after which it tries again.
        """
        raise NotImplementedError

    async def press(self, press: ButtonPress, lease: Lease | None = None) -> Received:
        """Decides as the person who pressed; the answer's `toast` says what became of it. Raises like `receive`."""
        raise NotImplementedError

    async def change(self, change: ChatChange, lease: Lease | None = None) -> Received:
        """Notes what happened to a chat: owners are asked about a new group. Raises like `receive`."""
        raise NotImplementedError
