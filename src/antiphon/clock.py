"""Time and chance, injected, so that a whole system runs under a seed."""

import random
import secrets
import time
from datetime import UTC, datetime
from typing import Protocol

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)


class Clock(Protocol):
    """Tells the time.

    - `now()` is aware and in UTC, and may be set back by the operating system.
    - `now_ms()` is the same in whole milliseconds since 1970.
    - `monotonic()` is in seconds, never goes back, and has no meaning across processes.
    """

    def now(self) -> datetime: ...

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The operating system's time."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class RandomIds:
    """Ids of 48 bits of time and 80 bits of chance, in an alphabet without look-alikes."""

    def __init__(self, clock: Clock, *, seed: int | None = None) -> None:
        self._clock = clock
        self._random = random.Random(seed) if seed is not None else secrets.SystemRandom()

    def new(self, prefix: str) -> str:
        number = (self._clock.now_ms() << 80) | self._random.getrandbits(80)
        pairs = _PAIRS
        digits = [pairs[number >> shift & 1023] for shift in range(120, -1, -10)]
        return f"{prefix}_{''.join(digits)}"

    def random_hex(self, digits: int) -> str:
        return f"{self._random.getrandbits(4 * digits):0{digits}x}"
