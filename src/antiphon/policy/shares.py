"""What is kept for the owner, and what each guest may take: places for runs, requests, storage. Contract: runs 1."""

from dataclasses import dataclass, field

from antiphon.domain.sandbox import MEBIBYTE

FEW = 6
"""Below so many places, one is kept for the owner, else two."""
CROWD = 10
"""Guests that one relay, such as a webhook, may let ask at full speed at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How often something may be asked for."""

    per_minute: int
    burst: int
    """How many at once, after a pause."""

    @property
    def per_second(self) -> float:
        return self.per_minute / 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How often each principal may write, call tools or post by a webhook."""

    guest: Rate = Rate(per_minute=120, burst=60)
    owner: Rate = Rate(per_minute=600_000, burst=60_000)

    @property
    def crowd(self) -> Rate:
        """Of all guests of one relay together."""
        return Rate(per_minute=CROWD * self.guest.per_minute, burst=CROWD * self.guest.burst)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What each principal may take that is not the owner."""

    sessions: int = 100
    """In which it takes part."""
    stored_bytes: int = 64 * MEBIBYTE
    """That it wrote into sessions which still exist."""
    queued_runs: int = 20
    """That wait for their turn."""
    rates: Rates = field(default_factory=Rates)


def reserve_of(count: int) -> int:
    """How many of the places only the owner's runs may take; none where there is but one place."""
    return 0 if count == 1 else 1 if count < FEW else 2


def most_of_one(count: int) -> int:
    """How many places one guest may hold: half of what guests have, so that another guest finds one."""
    return max(1, (count - reserve_of(count) + 1) // 2)
