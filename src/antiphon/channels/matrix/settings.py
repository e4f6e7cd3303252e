"""The settings of an account of Matrix, and of the bridges that are reached through it. Pure."""

import re

from msgspec import Struct

from antiphon.channels.bridges import Bridge
from antiphon.channels.sections import CatchUpSection

NAME = "matrix"
"""The channel's name in keys and places, and the account of the channels of bridges."""
USER_ID = re.compile(r"@[^:\s]+:\S+")
LONGEST_TEXT = 4_000
"""Characters of one message: an event has 64 KiB, encrypted and with its HTML."""


# Why an account cannot be served, by the server's code.
UNREACHABLE = "The homeserver cannot be reached."
WRONG_SECRET = "The homeserver does not accept the account's password or access token."
WRONG_USER = "The access token is another account's than channels.matrix.user."
OTHER_HOME = "The account was served by a gateway with another home, which has the keys of its device."
TROUBLES = {
    "other_home": OTHER_HOME,
    "no_answer": UNREACHABLE,
    "wrong_user": WRONG_USER,
    **dict.fromkeys(("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_FORBIDDEN", "M_USER_DEACTIVATED"), WRONG_SECRET),
    "M_LIMIT_EXCEEDED": "The homeserver asks to wait: too many requests came from the account.",
}
REMEDIES = {
    OTHER_HOME: "Copy `channels/matrix` from that home into this one, or give this one a device of its own.",
    UNREACHABLE: "Check whether this machine reaches channels.matrix.homeserver: its /_matrix/client/versions answers.",
    WRONG_SECRET: "Set the password, or the access token of a device that is signed in, anew.",
    WRONG_USER: "Set channels.matrix.user to the account of the token, or get a token of that account.",
}
"""By the trouble."""


class MatrixSettings(Struct, frozen=True, kw_only=True):
    """One account."""

    account: str
    homeserver: str
    """The address of its API, without a slash at the end."""
    user: str
    token: str | None
    """None if a password is given."""
    password: str | None
    stream_interval_ms: int
    catch_up: CatchUpSection
    """What is taken in of the messages of an outage."""
    bridges: tuple[Bridge, ...] = ()

    def __repr__(self) -> str:
        return f"MatrixSettings({self.user!r})"

    def bridge_of(self, user: str) -> Bridge | None:
        """The bridge that shows the user, or whose bot it is."""
        return next((bridge for bridge in self.bridges if bridge.is_of(user)), None)
