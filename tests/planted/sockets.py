"""Bugs in the WebSocket and the feed of changes."""

from tests.planted.bug import Bug

FOLLOWING = "gateway/socket/test_following.py"

BUGS = (
    Bug(
        "what a list brought comes again to who follows its session from before",
        "gateway/socket/subscriptions.py",
        "            follower.view = without(follower.view, has_already)\n",
        "            pass\n",
        f"{FOLLOWING}::test_what_a_list_brings_while_a_subscription_begins_comes_once[sqlite]",
    ),
)
