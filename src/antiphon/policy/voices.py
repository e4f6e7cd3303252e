"""What each channel's places hear besides replies. Contract: runs 2, groups 4."""

from collections.abc import Mapping

from msgspec import Struct, field

from antiphon.domain.session import DeliveryContext
from antiphon.domain.voice import DEFAULT_VOICE, Voice


class Voices(Struct, frozen=True):
    """By channel and account; an account without settings has the default."""

    by_account: Mapping[tuple[str, str | None], Voice] = field(default_factory=dict[tuple[str, str | None], Voice])

    def at(self, place: DeliveryContext) -> Voice:
        return self.by_account.get((place.channel or "", place.account_id), DEFAULT_VOICE)
