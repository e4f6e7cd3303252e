"""Acts and questions by which the worlds can still be told apart, with the reason. `make prove` leaves them out.

Each must differ, or it no longer belongs here: `test_worlds.py` sees to both.
"""

from collections.abc import Mapping

OPEN: Mapping[str, str] = {
    "talk in a known group": "the numbers of the messages that a session reads count those above it",
}
