"""What a channel's places hear besides replies: `channels.<name>.tell_errors` and `interim`.

Contract: runs 2, groups 4.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from antiphon.domain.session import DeliveryContext


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


class Voices(Struct, frozen=True):
    """By channel and account; an account without settings has the default."""

    by_account: Mapping[tuple[str, str | None], Voice] = field(default_factory=dict[tuple[str, str | None], Voice])

    def at(self, place: DeliveryContext) -> Voice:
        return self.by_account.get((place.channel or "", place.account_id), DEFAULT_VOICE)
