"""When something may be sent to a chat, as far as this process knows. Contract: channels 1."""

from typing import NamedTuple

from antiphon.clock import Clock
from antiphon.domain.delivery import LONGEST_WISH
from antiphon.domain.session import DeliveryContext
from antiphon.store.deliveries import ChannelAccount

MANY_CHATS = 1_000
LONGEST_INTERVAL_MS = 60_000
"""The longest time between two changes of a chat. If there are many chats, older uses are forgotten."""

LONGEST_PAUSE_MS = int(LONGEST_WISH.total_seconds() * 1000)
"""Complete texts of the chat wait as long."""


class PacedChat(NamedTuple):
    """A chat with all its threads, to which a platform's limits apply."""

    account: ChannelAccount
    to: str


def account_of(place: DeliveryContext) -> ChannelAccount:
    return ChannelAccount(place.channel or "", place.account_id)


def chat_of(place: DeliveryContext) -> PacedChat:
    return PacedChat(account_of(place), place.to or "")


class _Pause(NamedTuple):
    ends_at_ms: int
    cause: str | None
    """The delivery that the platform did not take."""


class RateLimits:
    """The uses and pauses of chats that get texts of the outbox, or replies while they are written."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pauses: dict[PacedChat, _Pause] = {}
        self._used_at: dict[PacedChat, int] = {}

    def now_ms(self) -> int:
        """The time by which uses and pauses are counted; it never goes back, whatever the clock is set to."""
        return int(self._clock.monotonic() * 1000)

    def note_use(self, chat: PacedChat) -> None:
        """Notes that something is sent to the chat, or changed there."""
        now = self.now_ms()
        if len(self._used_at) > MANY_CHATS:
            self._used_at = {each: at for each, at in self._used_at.items() if at + LONGEST_INTERVAL_MS > now}
        self._used_at[chat] = now

    def free_at(self, chat: PacedChat, interval_ms: int) -> int:
        """When something of the chat may be changed, that long after the last use; 0 if nothing is known of it."""
        used_at = self._used_at.get(chat)
        return max(0 if used_at is None else used_at + interval_ms, self.pause_ends_at(chat))

    def pause(self, chat: PacedChat, wait_ms: int, *, cause: str | None = None) -> None:
        """Notes that the platform asks to send nothing to the chat for that long; after an hour, it is asked again."""
        now, wait_ms = self.now_ms(), min(wait_ms, LONGEST_PAUSE_MS)
        if len(self._pauses) > MANY_CHATS:
            self._pauses = {each: pause for each, pause in self._pauses.items() if pause.ends_at_ms > now}
        if now + wait_ms > self.pause_ends_at(chat):
            self._pauses[chat] = _Pause(now + wait_ms, cause)

    def pause_ends_at(self, chat: PacedChat) -> int:
        """When the chat's last pause ends, or ended; 0 if it had none."""
        pause = self._pauses.get(chat)
        return 0 if pause is None else pause.ends_at_ms

    def holds(self, chat: PacedChat, delivery: str) -> bool:
        """Whether the delivery has to wait. The one that caused the pause is due when its row says."""
        pause = self._pauses.get(chat)
        return pause is not None and pause.ends_at_ms > self.now_ms() and pause.cause != delivery
