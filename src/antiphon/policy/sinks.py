"""What may go to places outside the sessions: channels, model providers, tools and commands. Contract: flow 7."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from antiphon.domain.classification import EVERYTHING, PEOPLE, PUBLIC, Classification, Level
from antiphon.domain.session import DeliveryContext

UNSET_CHANNEL = Classification(Level.PUBLIC, person=PEOPLE)
"""The clearance of a channel whose settings name none: public data, of whichever persons its recipients admit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sinks:
    """The clearances that the settings name. What they do not name has the default of its kind."""

    channels: Mapping[str, Classification] = field(default_factory=dict[str, Classification])
    """By account, as `DeliveryContext.account_id` names it, of the channel: `webhook:<name>`."""
    providers: Mapping[str, Classification] = field(default_factory=dict[str, Classification])
    """By the provider's name; everything unless set."""
    servers: Mapping[str, Classification] = field(default_factory=dict[str, Classification])
    """By the name of the MCP server; unless set, the declared classification of its results."""
    commands: Classification | None = None
    """Of commands with network or on the host; None for the declared classification of their output."""

    def of_place(self, place: DeliveryContext, recipient: Classification | None) -> Classification:
        """What may go to the place: the meet of its channel and recipient; None is an unknown one, PUBLIC."""
        channel = self.channels.get(f"{place.channel}:{place.account_id}", UNSET_CHANNEL)
        return channel.meet(PUBLIC if recipient is None else recipient)

    def of_provider(self, name: str) -> Classification:
        return self.providers.get(name, EVERYTHING)
