"""How long a test waits for what has to come."""

import time
from collections.abc import Callable

SECONDS = 120.0
"""Longer than anything takes that is merely slow, on a busy machine too: what has not come by then does not come.

How fast things are is measured by the benchmarks and by the long forms of the tests.
"""


def until(is_so: Callable[[], bool]) -> None:
    """Looks, without a loop of events, until it is so; fails where it does not come to be."""
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.02)
