"""Bridges: programs beside a server that show people of another platform as its users. Contract: channels 1.

A bridge brings a channel of its own, by the name that the settings give it, through the account of another channel.
Whoever has a name of the bridge's pattern is taken for that platform's person, so the server must keep these names to
the bridge.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from pydantic import Field

from antiphon.channels.kind import Given
from antiphon.channels.sections import GroupSection, PeopleSection
from antiphon.domain.errors import Invalid


class BridgeSection(PeopleSection):
    """A bridge to another platform, whose people are a channel of their own."""

    title: str = ""
    """What people call the platform, such as `WhatsApp`; the channel's name unless set."""
    users: str = ""
    """The ids of the users that the bridge makes, such as `@whatsapp_*:example.org`: with one `*`, and of the server of
    the account itself, whose registration of the bridge must keep these names to it."""
    bot: str | None = None
    """The bridge's own account, such as `@whatsappbot:example.org`. It is nobody; it makes groups, and is in them."""
    groups: dict[str, GroupSection] = Field(default_factory=dict[str, GroupSection])
    """Groups in which it may answer, by the id of their room."""


class Bridge(Struct, frozen=True, kw_only=True):
    channel: str
    before: str
    """How the ids of its users begin."""
    after: str
    """How they end, with the server."""
    bot: str | None = None

    def owns(self, user: str) -> bool:
        """Whether the id is that of a person whom the bridge shows."""
        is_long = len(user) > len(self.before) + len(self.after)
        return is_long and user.startswith(self.before) and user.endswith(self.after)

    def is_of(self, user: str) -> bool:
        """Whether it is such a person, or the bridge's bot."""
        return user == self.bot or self.owns(user)

    def overlaps(self, other: "Bridge") -> bool:
        """Whether an id could be of both."""
        begins = self.before.startswith(other.before) or other.before.startswith(self.before)
        ends = self.after.endswith(other.after) or other.after.endswith(self.after)
        return (begins and ends) or self.is_of(other.bot or "") or other.is_of(self.bot or "")


def read_bridges(
    given: Given[Any], place: Sequence[str], sections: Mapping[str, BridgeSection], *, own_id: str
) -> tuple[Bridge, ...]:
    """The bridges of the account with that id, whose sections stand at `place`.

    Raises `Invalid` for names that could be others': of another server, of another bridge, or the account's own.
    """
    server, found = own_id[own_id.index(":") :], list[Bridge]()
    pattern = re.compile(rf"(@[^:*\s]+)\*([^:*\s]*{re.escape(server)})")
    for name, section in sections.items():
        match = pattern.fullmatch(section.users)
        if match is None:
            raise Invalid(
                f"{given.at(*place, name, 'users')}: {section.users!r} must name users of the account's own server, "
                f"with one `*`, such as @{name}_*{server}. No other server keeps these names to the bridge.",
                code="invalid_config",
            )
        if section.bot is not None and not re.fullmatch(rf"@[^:*\s]+{re.escape(server)}", section.bot):
            raise Invalid(
                f"{given.at(*place, name, 'bot')}: {section.bot!r} must be an account of the server {server[1:]}.",
                code="invalid_config",
            )
        bridge = Bridge(channel=name, before=match[1], after=match[2], bot=section.bot)
        other = next((each for each in found if each.overlaps(bridge)), None)
        if other is not None or bridge.is_of(own_id):
            whose = "the account itself" if other is None else f"the bridge {other.channel!r}"
            raise Invalid(
                f"{given.at(*place, name)}: {section.users!r} and its bot also name {whose}. Each id may belong to one "
                "of them only.",
                code="invalid_config",
            )
        found.append(bridge)
    return tuple(found)
