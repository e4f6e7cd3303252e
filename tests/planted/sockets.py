"""Bugs in the WebSocket and the feed of changes."""

from tests.planted.bug import Bug

FOLLOWING = "gateway/socket/test_following.py"
BOUNDS = "gateway/socket/test_bounds.py"
CREDENTIALS = "gateway/socket/test_credentials.py"

BUGS = (
    Bug(
        "a request for a WebSocket that has a body is left without an answer",
        "gateway/connections.py",
        "        if problem := _problem_of_handshake(self.headers):\n",
        '        if problem := "":\n',
        "gateway/socket/test_bounds.py::test_upgrades_that_are_none_are_answered_over_http[sqlite]",
    ),
    Bug(
        "a socket that was only half open is kept",
        "gateway/socket_connection.py",
        "        self._all.forget(self)\n        super().connection_lost(exc)",
        "        super().connection_lost(exc)",
        "gateway/socket/test_bounds.py::test_a_thousand_half_open_sockets_leave_nothing[sqlite]",
    ),
    Bug(
        "readers with different clearances share a list",
        "gateway/socket/lists.py",
        "    return what, principal, principal.clearance, where\n",
        "    return what, principal, where\n",
        f"{FOLLOWING}::test_lists_of_readers_with_different_clearances_are_not_shared",
    ),
    Bug(
        "a message comes twice to who follows its session and a list",
        "gateway/socket/subscriptions.py",
        "        if (follower is not None and message in follower.span) or (past is not None and message in past):\n",
        "        if past is not None and message in past:\n",
        f"{FOLLOWING}::test_an_appended_message_comes_once_to_each_who_follows_it",
    ),
    Bug(
        "what a list brought comes again to who follows its session from before",
        "gateway/socket/subscriptions.py",
        "            follower.view = without(follower.view, has_already)\n",
        "            pass\n",
        f"{FOLLOWING}::test_what_a_list_brings_while_a_subscription_begins_comes_once[sqlite]",
    ),
    Bug(
        "two lists bring a message twice",
        "gateway/socket/subscriptions.py",
        "        if message.seq in self._listed.get(key, ()):\n",
        "        if False:\n",
        f"{FOLLOWING}::test_two_lists_with_a_session_bring_its_message_once[sqlite]",
    ),
    Bug(
        "a client that answers no ping is ended with a code of the library",
        "gateway/socket_connection.py",
        '        self.end(TOO_SLOW, "Client does not answer pings. Connect again and resume after the last seq.")\n',
        "        super().keepalive_timeout()\n",
        f"{BOUNDS}::test_a_client_that_answers_no_ping_is_ended_as_one_that_does_not_read[sqlite]",
    ),
    Bug(
        "a row that leaves a list stays in it",
        "feed/listed.py",
        "                self._hide(change.session)\n",
        "                pass\n",
        f"{FOLLOWING}::test_a_row_that_leaves_the_list_is_gone_for_its_reader",
    ),
    Bug(
        "a socket by cookie needs no origin",
        "gateway/authentication.py",
        '        if (is_socket or scope["method"] not in SAFE_METHODS) and',
        '        if not is_socket and scope["method"] not in SAFE_METHODS and',
        f"{CREDENTIALS}::test_a_browser_needs_its_cookie_its_page_secret_and_its_own_origin",
    ),
    Bug(
        "a socket whose token ended is closed as if all were well",
        "gateway/socket/connection.py",
        "        self._tasks.start_soon(self._end_later, 1008, reason.value)\n",
        "        self._tasks.start_soon(self._end_later, 1000, reason.value)\n",
        f"{CREDENTIALS}::test_a_socket_and_its_requests_end_with_its_token",
    ),
    Bug(
        "a lost connection leaves its waits",
        "gateway/socket/connection.py",
        "                self._waits.cancel()\n",
        "                pass\n",
        f"{CREDENTIALS}::test_a_lost_connection_cancels_waits_and_never_work",
    ),
    Bug(
        "a message may come in any number of pieces",
        "gateway/socket_connection.py",
        "        if len(self.frames) > self._limits.fragments",
        "        if len(self.frames) > 10**9 + self._limits.fragments",
        f"{BOUNDS}::test_a_message_in_a_million_pieces_is_cut",
    ),
    Bug(
        "a connection may have any number of open requests",
        "gateway/socket/connection.py",
        "        elif len(self._open) >= MAX_OPEN:\n",
        "        elif len(self._open) >= 10 * MAX_OPEN:\n",
        f"{BOUNDS}::test_more_than_64_open_requests_are_refused_as_busy",
    ),
    Bug(
        "the query of a socket's address is accepted",
        "gateway/guard.py",
        '            if scope["query_string"]:\n',
        '            if scope["query_string"] == b"?":\n',
        f"{BOUNDS}::test_a_token_in_the_address_is_refused_and_not_logged",
    ),
)
