"""Time and randomness, injected, so that a whole system runs under a seed."""

import os
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


_ID_DIGITS = 20
_IDS_A_DRAW = 64
_DRAWN: list[str] = []
"""Random digits of ids to come, drawn for many at once: each draw is a call into the kernel."""
os.register_at_fork(after_in_child=_DRAWN.clear)  # a forked process must not use those of its parent


class RandomIds:
    """Ids of 44 bits of time and 80 random bits, in hexadecimal."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def new(self, prefix: str) -> str:
        return f"{prefix}_{self._clock.now_ms():011x}{_digits_of_an_id()}"

    def random_hex(self, digits: int) -> str:
        return _random_digits(digits)


def _digits_of_an_id() -> str:
    while True:
        try:
            return _DRAWN.pop()  # one step, whatever other threads do
        except IndexError:
            drawn = _random_digits(_ID_DIGITS * _IDS_A_DRAW)
            _DRAWN.extend(drawn[start : start + _ID_DIGITS] for start in range(0, len(drawn), _ID_DIGITS))


def _random_digits(count: int) -> str:
    return os.urandom((count + 1) // 2).hex()[:count]
