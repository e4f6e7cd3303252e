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


_RANDOM_BITS = 80
_ID_DIGITS = 31
_STEP = (1 << 64) - 1
_CORRECTION = 1_000 << _RANDOM_BITS
_IDS_A_DRAW = 64
_DRAWN: list[int] = []
"""Random bits of ids to come, drawn for many at once: each draw is a call into the kernel."""
os.register_at_fork(after_in_child=_DRAWN.clear)  # a forked process must not use those of its parent


class RandomIds:
    """Ids of 44 bits of time and 80 random bits, in hexadecimal; each sorts after those made before it.

    Of several in one millisecond, and after the clock was corrected by less than a second, each is the last one and a
    random number more. After it was set back further, ids have the new time, as those have that come from stored times.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._latest = 0

    def new(self, prefix: str) -> str:
        try:
            drawn = _DRAWN.pop()  # one step, whatever other threads do
        except IndexError:
            drawn = _draw()
        latest = self._latest
        made = self._clock.now_ms() << _RANDOM_BITS | drawn
        if made <= latest < made + _CORRECTION:
            made = latest + 1 + (drawn & _STEP)
        self._latest = made
        return f"{prefix}_{made:0{_ID_DIGITS}x}"

    def random_hex(self, digits: int) -> str:
        return os.urandom((digits + 1) // 2).hex()[:digits]


def _draw() -> int:
    """Random bits for one id; those of the next ids are kept."""
    size = _RANDOM_BITS // 8
    drawn = os.urandom(size * _IDS_A_DRAW)
    first, *others = (int.from_bytes(drawn[start : start + size]) for start in range(0, len(drawn), size))
    _DRAWN.extend(others)
    return first
