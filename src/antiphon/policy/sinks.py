"""What may go to sinks: channels with their recipients, model providers, tools and commands. Contract: flow 7."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from antiphon.domain.classification import EVERYTHING, PEOPLE, PUBLIC, Classification, Level
from antiphon.domain.person import PersonId
from antiphon.domain.session import DeliveryContext

UNSET_CHANNEL = Classification(Level.PUBLIC, person=PEOPLE)
"""The clearance of a channel whose settings name none: public data, of any person whose data the recipient may read."""


class GroupName(NamedTuple):
    """A group of an account, by the id that the settings name."""

    channel: str
    account: str
    group_id: str


class Sinks(Struct, frozen=True, kw_only=True):
    """The clearances that the settings name. What they do not name has the default of its kind."""

    channels: Mapping[str, Classification] = field(default_factory=dict[str, Classification])
    """By account, as `DeliveryContext.account_id` names it, of the channel: `webhook:<name>`."""
    owners: frozenset[str] = frozenset()
    """Accounts, named likewise, on which everybody is the owner."""
    groups: Mapping[GroupName, tuple[PersonId, ...]] = field(default_factory=dict[GroupName, tuple[PersonId, ...]])
    """The members of the groups whose settings name them. What the members of other groups may read is unknown."""
    readers: Mapping[str, PersonId] = field(default_factory=dict[str, PersonId])
    """Who alone reads at an account, named likewise, that only notifies one person."""
    providers: Mapping[str, Classification] = field(default_factory=dict[str, Classification])
    """By the provider's name; everything unless set."""
    commands: Classification | None = None
    """Of commands with network or on the host; None for the declared classification of their output."""

    def of_place(self, place: DeliveryContext, recipient: Classification | None) -> Classification:
        """The meet of the channel and its recipient. Unknown recipients (None) are PUBLIC."""
        account = f"{place.channel}:{place.account_id}"
        channel = self.channels.get(account, UNSET_CHANNEL)
        if account in self.owners:
            return channel
        return channel.meet(PUBLIC if recipient is None else recipient)

    def members_of(self, group: GroupName, address: str) -> tuple[PersonId, ...]:
        """The members that the settings name; they know the group by its id or by its present address."""
        return self.groups.get(group) or self.groups.get(group._replace(group_id=address), ())

    def reader_of(self, place: DeliveryContext) -> PersonId | None:
        """The person to whom all at the account goes; None where the recipient of each text counts."""
        return self.readers.get(f"{place.channel}:{place.account_id}")

    def of_provider(self, name: str) -> Classification:
        return self.providers.get(name, EVERYTHING)

    def of_commands(self, declared: Classification) -> Classification:
        """What may go to a command with network or on the host; `declared` is what its output is made of."""
        return _of_anybody(declared) if self.commands is None else self.commands


def clearance_of_group(members: Iterable[Classification | None]) -> Classification | None:
    """What everybody in a group may read; None for a group with an unknown member (None), or with none at all."""
    found: Classification | None = None
    for clearance in members:
        if clearance is None:
            return None
        found = clearance if found is None else found.meet(clearance)
    return found


def clearance_of_tool(
    declared: Classification, clearance: Classification | None, *, only_reads: bool
) -> Classification:
    """What a call may carry to a Python function or a tool of an MCP server.

    Its own clearance; unless set, a tool that does more than read takes what its results are `declared` to be made of.
    """
    if clearance is not None:
        return clearance
    return EVERYTHING if only_reads else _of_anybody(declared)


def _of_anybody(declared: Classification) -> Classification:
    """The same as a clearance: a sink that names no person takes everybody's data."""
    return declared if declared.person is not None else replace(declared, person=PEOPLE)
