"""What people wrote during an outage, for adapters whose platform shows earlier messages. Contract: channels 1."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from msgspec.structs import replace

from antiphon.clock import Clock
from antiphon.domain.inbound import Inbound

ALIVE = timedelta(minutes=1)
"""How often an adapter notes that its account is read, for chats from which nothing came yet."""
SKEW = timedelta(minutes=2)
"""How far this machine's clock may be off from the platform's."""


class CatchUpLimits(Protocol):
    """How old a message may be that is answered still, and how many of one chat are (`catch_up` of the settings)."""

    @property
    def oldest(self) -> timedelta: ...

    @property
    def messages(self) -> int: ...


class CatchUp:
    """One look at the chats of an account, once it is connected again."""

    def __init__(self, limits: CatchUpLimits, clock: Clock, *, alive_at: datetime | None) -> None:
        """`alive_at` is when the account was read last; None before its first time."""
        self._limits = limits
        self._since = clock.now() - limits.oldest
        self._alive_at = alive_at

    @property
    def begins_at(self) -> datetime:
        """From when on a chat is looked at of which no position is stored."""
        alive = self._since if self._alive_at is None else self._alive_at - ALIVE
        return max(self._since, alive) - SKEW

    async def take(
        self,
        missed: AsyncIterator[Inbound | None],
        take: Callable[[Inbound], Awaitable[None]],
        *,
        is_known: bool,
    ) -> None:
        """Takes in what one chat missed, the oldest first; None stands for a message of the bot itself.

        At the very first look at a chat (not `is_known`), what the bot has answered may be another gateway's business.
        """
        found = list[Inbound]()
        async for each in missed:
            if each is not None:
                found.append(each)
            elif not is_known and self._alive_at is None:
                found.clear()
        for each in caught_up(found, since=self._since, most=self._limits.messages):
            await take(each)


def caught_up(missed: Sequence[Inbound], *, since: datetime, most: int) -> list[Inbound]:
    """The messages of one chat that are taken in, in their order: the newest, and none from before `since`.

    If some are left out that the bot was meant to answer, the newest of those stands first, without its words: it tells
    its sender of them, once.
    """
    recent = [each for each in missed if each.sent_at is None or each.sent_at >= since]
    taken = recent[-most:] if most else []
    kept = {each.platform_id for each in taken}
    left = [each for each in missed if each.is_meant and each.platform_id not in kept]
    if not left:
        return taken
    told = replace(
        left[-1], text="", attribution=None, cites=(), unfetched=(), has_files=False, refused=(_said(len(left)),)
    )
    return [told, *taken]


def _said(number: int) -> str:
    what = "A message was" if number == 1 else f"{number} messages were"
    return f"{what} written here while I was away, and will not be answered. Write again what still matters."
