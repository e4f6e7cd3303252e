"""How long a test waits for something that has to come. No other place says it."""

import os
import time
from collections.abc import Callable

SECONDS = float(os.environ.get("ANTIPHON_TEST_SECONDS", "10"))
"""How long a wait lasts before the test is red. CI sets a longer one, for machines that do other work meanwhile.

How fast things are is measured by the benchmarks and by the long forms of the tests.
"""


def at_least(seconds: float) -> float:
    """A longer wait, for a test that names it and says why."""
    return max(seconds, SECONDS)


PROCESS_SECONDS = at_least(60)
"""For programs: each takes seconds of a processor to begin, and several begin at once."""


def until(is_so: Callable[[], object], *, seconds: float = SECONDS) -> None:
    """Looks, without an event loop, until it is so. Fails if it does not become so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.02)
