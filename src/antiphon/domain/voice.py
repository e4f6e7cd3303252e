"""What a place hears besides replies: `channels.<name>.tell_errors` and `interim`. Contract: runs 2, groups 4."""

from enum import StrEnum

from msgspec import Struct


class TellErrors(StrEnum):
    """Who is told why there is no reply."""

    ASKER = "asker"
    """The place where the reply would stand."""
    OWNER = "owner"
    """The private chats of owners; without any, it is shown to them as not delivered."""
    NONE = "none"
    """Nobody there; the log and the page say it."""


class Interim(StrEnum):
    """What becomes of texts beside the calls of a turn that goes on."""

    SEND = "send"
    DROP = "drop"


class Voice(Struct, frozen=True, kw_only=True):
    """The settings of one account of a channel."""

    tell_errors: TellErrors = TellErrors.ASKER
    interim: Interim | None = None
    """None sends them in direct chats, and drops them in groups."""


DEFAULT_VOICE = Voice()
