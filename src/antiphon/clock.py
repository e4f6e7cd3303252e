"""Time and randomness, injected, so that a whole system runs under a seed."""

import random
import secrets
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Returns the time.

    - `now()` is aware and in UTC; the operating system may set it back.
    - `now_ms()` is the same in whole milliseconds since 1970.
    - `monotonic()` is in seconds, never goes back, and cannot be compared between processes.
    """

    def now(self) -> datetime: ...

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...


def time_left(until: datetime, now: datetime, longest: timedelta) -> timedelta:
    """The time until then: never negative, and never longer than the longest wait, also after the clock went back."""
    return min(max(until - now, timedelta(0)), longest)


class SystemClock:
    """The operating system's time."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class RandomIds:
    """Ids of 44 bits of time and 80 random bits, in hexadecimal."""

    def __init__(self, clock: Clock, *, seed: int | None = None) -> None:
        self._clock = clock
        self._random = random.Random(seed) if seed is not None else secrets.SystemRandom()

    def new(self, prefix: str) -> str:
        return f"{prefix}_{self._clock.now_ms():011x}{self._random.getrandbits(80):020x}"

    def random_hex(self, digits: int) -> str:
        return f"{self._random.getrandbits(4 * digits):0{digits}x}"
