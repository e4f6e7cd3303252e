"""What persons below owner may spend in a UTC day, each and all guests together. Contract: runs 6."""

from collections.abc import Mapping

from msgspec import Struct

from antiphon.domain.agent import DailyLimits
from antiphon.domain.person import PersonRole
from antiphon.domain.run import GUESTS_CAP, PERSON_CAP
from antiphon.policy.standing import Standing

GUESTS = "guests"
"""Spends what all guests spend."""
NO_LIMIT = DailyLimits(tokens=None, usd=None)
OWNERS_PART = 10
"""One part in so many of what agents may use in a day is left for owners."""


class Cap(Struct, frozen=True, kw_only=True):
    """A limit of a UTC day, and how to speak of it."""

    limits: DailyLimits
    setting: str
    """The setting to raise."""
    code: str = "daily_cap"
    name: str = "daily cap"


class PersonCaps(Struct, frozen=True, kw_only=True):
    guest: DailyLimits = NO_LIMIT
    """Of each guest."""
    user: DailyLimits = NO_LIMIT
    """Of each user."""
    guests: DailyLimits = NO_LIMIT
    """Of all guests together."""


def without_reserve(limits: DailyLimits) -> DailyLimits:
    """What persons below owner may use of an agent's day, or of the day of all agents."""
    return DailyLimits(
        tokens=limits.tokens and limits.tokens - limits.tokens // OWNERS_PART,
        usd=limits.usd and limits.usd * (1 - 1 / OWNERS_PART),
    )


def half_of(limits: DailyLimits) -> DailyLimits:
    """What all guests together may use unless a setting says it, so that the day is not theirs alone."""
    return DailyLimits(tokens=limits.tokens and (limits.tokens + 1) // 2, usd=limits.usd and limits.usd / 2)


def spenders_of(standing: Standing) -> tuple[str, ...]:
    """Whose sums grow by what runs of the principal use: its own, and for a guest that of all guests.

    Owners, sessions and the system have none.
    """
    match standing.role:
        case PersonRole.USER:
            return (str(standing.principal),)
        case PersonRole.GUEST:
            return (str(standing.principal), GUESTS)
        case _:
            return ()


def caps_of(standing: Standing, caps: PersonCaps) -> Mapping[str, Cap]:
    """The caps of the principal's runs besides their agent's, by the spender whose sum they limit."""
    found: dict[str, Cap] = {}
    for spender in spenders_of(standing):
        if spender == GUESTS:
            found[spender] = Cap(
                limits=caps.guests, setting="limits.guests", code=GUESTS_CAP, name="daily cap of all guests together"
            )
        else:
            is_user = standing.role is PersonRole.USER
            limits, setting = (caps.user, "limits.user") if is_user else (caps.guest, "limits.guest")
            found[spender] = Cap(limits=limits, setting=setting, code=PERSON_CAP, name="daily cap of this person")
    return found
