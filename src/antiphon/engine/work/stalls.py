"""How long the event loop stood still: p99.9 and the longest stall of the last hour, in a few hundred numbers."""

from bisect import bisect_left
from collections import deque

from msgspec import Struct

HOUR_SECONDS = 3600.0
SPAN_SECONDS = 300.0
"""Counts are forgotten in spans of this length."""
BOUNDS_MS = tuple(round(2 ** (step / 4), 1) for step in range(65))
"""Upper ends of what is counted together: 1 ms to 65 s, each a fifth longer than the one before."""


class Stalls(Struct, frozen=True, kw_only=True):
    """How late the loop's timer was, in milliseconds."""

    p999_ms: float
    longest_ms: float


class _Span:
    def __init__(self, began_at: float) -> None:
        self.began_at = began_at
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.longest_ms = 0.0


class StallMeter:
    """Counts by how much each tick of a timer was late. `note` costs less than a microsecond."""

    def __init__(self) -> None:
        self._spans: deque[_Span] = deque()

    def note(self, late_seconds: float, now: float) -> None:
        """A tick at `now`, on the monotonic clock, was late by so much."""
        if not self._spans or now - self._spans[-1].began_at >= SPAN_SECONDS:
            self._spans.append(_Span(now))
            while now - self._spans[0].began_at >= HOUR_SECONDS + SPAN_SECONDS:
                self._spans.popleft()
        span, late_ms = self._spans[-1], max(late_seconds * 1000, 0.0)
        span.counts[bisect_left(BOUNDS_MS, late_ms)] += 1
        span.longest_ms = max(span.longest_ms, late_ms)

    def last_hour(self) -> Stalls:
        counts = [sum(column) for column in zip(*(span.counts for span in self._spans), strict=True)]
        longest = max((span.longest_ms for span in self._spans), default=0.0)
        return Stalls(p999_ms=round(min(_bound_above(counts, 0.999), longest), 1), longest_ms=round(longest, 1))


def _bound_above(counts: list[int], share: float) -> float:
    """The upper end of the counts within which this share of all ticks lies."""
    needed, seen = share * sum(counts), 0
    for bound, count in zip(BOUNDS_MS, counts, strict=False):
        seen += count
        if seen >= needed:
            return bound
    return float("inf")
