"""What is reserved for the owner, and each guest's share: places for runs, requests, storage. Contract: runs 1."""

from msgspec import Struct, field

from antiphon.domain.sandbox import MEBIBYTE

FEW = 6
"""With fewer places than this, one is reserved for the owner; otherwise two."""
CROWD = 10
"""How many guests of one relay, such as a webhook, may send requests at full speed at the same time."""


class Rate(Struct, frozen=True, kw_only=True):
    """How often a request may be made."""

    per_minute: int
    burst: int
    """How many requests may come at once, after a pause."""

    @property
    def per_second(self) -> float:
        return self.per_minute / 60


class Rates(Struct, frozen=True, kw_only=True):
    """How often each principal may write, call tools or post through a webhook."""

    guest: Rate = Rate(per_minute=120, burst=60)
    owner: Rate = Rate(per_minute=600_000, burst=60_000)

    @property
    def crowd(self) -> Rate:
        """The rate of all guests of one relay together."""
        return Rate(per_minute=CROWD * self.guest.per_minute, burst=CROWD * self.guest.burst)


class Shares(Struct, frozen=True, kw_only=True):
    """The share of each principal other than the owner."""

    sessions: int = 100
    """Sessions it takes part in."""
    stored_bytes: int = 64 * MEBIBYTE
    """Bytes it wrote into sessions that still exist."""
    session_bytes: int = 256 * MEBIBYTE
    """Bytes that it and others with a share wrote into one session."""
    free_disk_bytes: int = 1024 * MEBIBYTE
    """Bytes of the home's disk that files of people, the owner's too, leave free."""
    queued_runs: int = 20
    """Its runs that wait to start."""
    messages_per_minute: int = 20
    """Messages it may send, in all processes together."""
    rates: Rates = field(default_factory=Rates)


def reserve_of(count: int) -> int:
    """How many of the places only the owner's runs may take; none if there is only one place."""
    return 0 if count == 1 else 1 if count < FEW else 2


def most_of_one(count: int) -> int:
    """How many places one guest may hold: half of the guests' places, so that another guest finds one."""
    return max(1, (count - reserve_of(count) + 1) // 2)
