"""How often each principal may ask: one token bucket each, in this process. Contract: answers 5."""

import math
from collections import OrderedDict
from dataclasses import dataclass

from antiphon.clock import Clock
from antiphon.domain.actor import Principal
from antiphon.domain.errors import Limited
from antiphon.policy.shares import Rate, Rates

MAX_BUCKETS = 10_000
"""Limit of remembered principals. The least recent one is forgotten first, and then starts with a full bucket."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class Buckets:
    """Refuses requests that come more often than the rates allow."""

    def __init__(self, rates: Rates, clock: Clock) -> None:
        self._rates = rates
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, principal: Principal, *, is_favoured: bool) -> None:
        """Takes a token from the principal's bucket. Raises `Limited` (`rate_limited`) with the time to wait.

        `is_favoured` says whether an owner asks, as the edge knows it. It sets the rate and gives no right.
        """
        self.take_at(str(principal), self._rates.owner if is_favoured else self._rates.guest)

    def take_for_crowd(self, name: str) -> None:
        """Does the same for all principals that one relay speaks for together, at ten times one principal's rate."""
        self.take_at(f"crowd:{name}", self._rates.crowd)

    def take_in_crowd(self, principal: Principal, name: str) -> None:
        """Takes a token for one of the crowd, after `take_for_crowd` did for all.

        If the principal has none left, the crowd gets its token back, so that one loud sender does not use up all.
        """
        try:
            self.take(principal, is_favoured=False)
        except Limited:
            crowd = self._buckets.get(f"crowd:{name}")
            if crowd is not None:
                crowd.tokens = min(self._rates.crowd.burst, crowd.tokens + 1)
            raise

    def take_at(self, name: str, rate: Rate) -> None:
        """Takes a token from the bucket of that name. Raises `Limited` (`rate_limited`)."""
        now = self._clock.monotonic()
        bucket = self._buckets.pop(name, None) or _Bucket(rate.burst, now)
        passed = max(0.0, now - bucket.filled_at)
        bucket.tokens = min(rate.burst, bucket.tokens + passed * rate.per_second)
        bucket.filled_at = now
        self._buckets[name] = bucket
        while len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        if bucket.tokens < 1:
            seconds = max(1, math.ceil((1 - bucket.tokens) / rate.per_second))
            raise Limited(
                f"Requests are too frequent: more than {rate.per_minute} a minute. Try again in {seconds} s.",
                code="rate_limited",
                retry_after_seconds=seconds,
            )
        bucket.tokens -= 1
