"""Bugs in following and waking."""

from tests.planted.bug import Bug

BUGS = (
    Bug(
        "one who no longer listens takes the others along",
        "feed/local.py",
        "subscribers.pop(token, None) is not None and not subscribers:",
        "subscribers.pop(token, None) is not None:",
        "feed/test_local.py::test_who_no_longer_listens_is_not_woken_and_others_are",
    ),
    Bug(
        "a connection that is full is written to",
        "feed/follow.py",
        "            if not outlet.is_writable:\n                return False\n",
        "",
        "feed/test_follow.py::test_a_connection_that_is_full_gets_nothing_more_and_its_task_gets_the_rest[sqlite]",
    ),
)
