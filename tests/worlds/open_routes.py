"""Acts and questions by which the worlds can still be told apart, with the reason. `make prove` leaves them out.

Each must differ, or it no longer belongs here: `test_worlds.py` sees to both.
"""

from collections.abc import Mapping

OPEN: Mapping[str, str] = {
    "a silent word above in a group": "the time of a session's last message is shown to other sessions",
}
