"""What people wrote during an outage, for adapters whose platform shows earlier messages. Contract: channels 1."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from antiphon.channels.sections import CatchUpSection
from antiphon.clock import Clock
from antiphon.domain.inbound import Inbound
from antiphon.engine.chats.accounts import AccountLease, Accounts
from antiphon.engine.chats.reception import Reception

ALIVE = timedelta(minutes=1)
"""How often an adapter notes that its account is read, for chats from which nothing came yet."""
SKEW = timedelta(minutes=2)
"""How far this machine's clock may be off from the platform's."""


class CatchUp:
    """One look at the chats of an account, once it is connected again."""

    def __init__(
        self, section: CatchUpSection, reception: Reception, accounts: Accounts, clock: Clock, *, lease: AccountLease
    ) -> None:
        self._section = section
        self._reception = reception
        self._accounts = accounts
        self._now = clock.now()
        self._lease = lease

    def begins_at(self, alive_at: datetime | None) -> datetime:
        """From when on a chat is looked at of which no position is stored.

        `alive_at` is when the account was read last; None before its first time.
        """
        since = self._now - self._section.oldest
        return max(since, since if alive_at is None else alive_at - ALIVE) - SKEW

    async def take(
        self, missed: Sequence[Inbound], take: Callable[[Inbound], Awaitable[None]], *, is_of_one_chat: bool = True
    ) -> None:
        """Takes in what was missed, the oldest first, as the settings say; owners are told of the others."""
        dated = [
            (each.platform_id, None if is_of_one_chat else each.place.to, each.sent_at or self._now) for each in missed
        ]
        passed_over = self._section.passed_over(dated, self._now, is_first=True)
        left = [each for each in missed if each.platform_id in passed_over]
        if number := sum(each.is_meant for each in left):
            await self._reception.tell_passed_over(self._lease, number, name=left[-1].platform_id)
        for each in missed:
            if each.platform_id not in passed_over:
                await take(each)
            elif each.position is not None:
                await self._accounts.advance(self._lease, each.position)
