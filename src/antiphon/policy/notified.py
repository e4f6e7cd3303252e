"""Accounts that only tell one person how much waits for them. Contract: channels 1."""

from msgspec import Struct

from antiphon.domain.person import PersonId
from antiphon.domain.session import DeliveryContext


class NotifiedPerson(Struct, frozen=True, kw_only=True):
    """A person who gets notifications through an account."""

    channel: str
    account: str
    person: PersonId
    page: str | None = None
    """The address of the page; None if the settings name none that works elsewhere."""

    @property
    def place(self) -> DeliveryContext:
        """Where only that person reads."""
        return DeliveryContext(channel=self.channel, to=self.person, account_id=self.account)
