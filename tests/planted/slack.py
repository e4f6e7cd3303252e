"""Bugs of the channel `slack`."""

from tests.planted.bug import Bug

DIRECTORY = "channels/slack"
EVENTS = f"{DIRECTORY}/test_events.py::"
SENDING = f"{DIRECTORY}/test_sending.py::"
SOCKET = f"{DIRECTORY}/test_socket_mode.py::"
POSTS = f"{DIRECTORY}/test_posts.py::"
CATCHING_UP = f"{DIRECTORY}/test_catching_up.py::"

BUGS = (
    Bug(
        "an envelope is confirmed before its message is stored",
        f"{DIRECTORY}/loop.py",
        "        payload = self.intake.read(lambda: read_payload(envelope.payload))\n",
        "        await envelope.confirm()\n"
        "        payload = self.intake.read(lambda: read_payload(envelope.payload))\n",
        SOCKET + "test_an_envelope_is_confirmed_only_after_its_message_is_stored[sqlite]",
    ),
    Bug(
        "an envelope that cannot be read is never confirmed",
        f"{DIRECTORY}/loop.py",
        "        is_doubtful = payload is not None and await",
        "        if payload is None:\n            return\n        is_doubtful = payload is not None and await",
        SOCKET + "test_nonsense_ends_nothing[sqlite]",
    ),
    Bug(
        "a post is taken in whatever its signature",
        f"{DIRECTORY}/posts.py",
        "        if not is_signed(secret, ",
        "        if not secret and not is_signed(secret, ",
        POSTS + "test_only_what_is_signed_with_the_secret_is_taken_in[sqlite]",
    ),
    Bug(
        "an old post is taken in",
        f"{DIRECTORY}/posts.py",
        "            check_age(time, self._clock.now().timestamp())\n",
        "            check_age(time, float(time))\n",
        POSTS + "test_an_old_request_is_refused_and_told_from_a_wrong_clock[sqlite]",
    ),
    Bug(
        "every old post is held for a wrong clock",
        f"{DIRECTORY}/client.py",
        "        if abs(self._skew) > MAX_AGE_SECONDS:\n",
        "        if self._clock.monotonic() > 0:\n",
        POSTS + "test_an_old_request_is_refused_and_told_from_a_wrong_clock[sqlite]",
    ),
    Bug(
        "a wrong clock is no trouble",
        f"{DIRECTORY}/loop.py",
        "        self._client.check_clock()\n",
        "",
        POSTS + "test_an_old_request_is_refused_and_told_from_a_wrong_clock[sqlite]",
    ),
    Bug(
        "a post counts as read that came behind one which was not stored",
        f"{DIRECTORY}/posts.py",
        "        self._lease = None\n        self._again.set()\n",
        "",
        POSTS + "test_what_cannot_be_stored_is_refused_so_that_slack_posts_it_again",
    ),
    Bug(
        "a post of another workspace is taken in",
        f"{DIRECTORY}/posts.py",
        "                if payload.is_for(await each.client.me()):\n",
        "                if await each.client.me():\n",
        POSTS + "test_a_workspace_that_is_not_configured_gets_nothing[sqlite]",
    ),
    Bug(
        "the challenge of an address is not answered",
        f"{DIRECTORY}/posts.py",
        '        if payload is not None and payload.type == "url_verification":\n',
        '        if payload is not None and payload.type == "urlverification":\n',
        POSTS + "test_the_address_is_proved_and_checks_of_certificates_have_no_effect[sqlite]",
    ),
    Bug(
        "an event about the end of the token is no reason to look",
        f"{DIRECTORY}/intake.py",
        "            if payload.event.type in _ENDED:\n                return True\n",
        "",
        POSTS + "test_an_app_that_was_removed_is_a_trouble_until_it_is_back[sqlite-{'type': 'app_uninstalled'}]",
    ),
    Bug(
        "an event waits for every name that does not come",
        f"{DIRECTORY}/directory.py",
        "        if not must and self._clock.monotonic() < self._quiet_until:\n",
        "        if not must and self._clock is None:\n",
        POSTS + "test_a_slow_slack_delays_no_answer_beyond_its_patience[sqlite]",
    ),
    Bug(
        "a post whose failure was nobody's is answered as stored",
        f"{DIRECTORY}/posts.py",
        "                self.look_again()\n                raise _unreachable() from error\n",
        "                self.look_again()\n                del error\n",
        POSTS + "test_who_must_be_known_and_is_not_is_asked_for_again[sqlite]",
    ),
    Bug(
        "the old connection goes before the next one stands",
        f"{DIRECTORY}/socket.py",
        "                await tasks.start(_serve, client, tasks, sending)\n                has_successor = True\n",
        "                break\n",
        SOCKET + "test_a_new_connection_stands_before_the_old_one_goes[sqlite-warning]",
    ),
    Bug(
        "a connection that asks twice to be renewed is renewed twice",
        f"{DIRECTORY}/socket.py",
        "            elif not has_successor:\n",
        "            else:\n",
        SOCKET + "test_a_new_connection_stands_before_the_old_one_goes[sqlite-refresh_requested]",
    ),
    Bug(
        "both events of a mention are messages",
        f"{DIRECTORY}/events.py",
        '        platform_id=f"{event.where}:{event.ts}",\n',
        '        platform_id=f"{event.type}:{event.where}:{event.ts}",\n',
        EVENTS + "test_both_events_of_a_mention_are_one_message",
    ),
    Bug(
        "a user of another company has the id of this workspace",
        f"{DIRECTORY}/events.py",
        "    is_here = team in (me.team_id, me.enterprise_id)\n",
        "    is_here = True\n",
        EVENTS + "test_people_of_an_enterprise_have_its_id_and_strangers_of_shared_channels_their_own",
    ),
    Bug(
        "a program that writes by a user's account starts runs",
        f"{DIRECTORY}/events.py",
        " and not self.hidden and self.bot_id is None and",
        " and not self.hidden and",
        f"{DIRECTORY}/test_workspace.py::test_bots_and_the_app_itself_start_nothing[sqlite]",
    ),
    Bug(
        "a mention that two pieces of a stream make is not escaped",
        f"{DIRECTORY}/channel.py",
        "        words = defuse(part.text)[len(defuse(stream.text)) :] or None\n",
        "        words = defuse(part.text[len(stream.text) :]) or None\n",
        SENDING + "test_words_of_a_model_call_nobody_together",
    ),
    Bug(
        "words whose answer was lost are streamed again",
        f"{DIRECTORY}/channel.py",
        "            stream.is_sure = error.code == LIMITED\n",
        "            stream.is_sure = True\n",
        SENDING + "test_words_whose_answer_was_lost_are_not_shown_twice[act_and_drop]",
    ),
    Bug(
        "words that were given up while Slack took them are streamed again",
        f"{DIRECTORY}/channel.py",
        "        stream.is_sure = False\n",
        "",
        SENDING + "test_words_that_are_given_up_on_the_way_are_not_shown_twice",
    ),
    Bug(
        "a stream that another process left open stays open",
        f"{DIRECTORY}/channel.py",
        "        elif where.thread is not None and part.spans is None:\n",
        "        elif where.thread is None:\n",
        SENDING + "test_another_process_completes_a_stream_that_was_left_open",
    ),
    Bug(
        "a text that is sent again is not looked for",
        f"{DIRECTORY}/channel.py",
        "            if shown is None and delivery.attempts > 1:\n",
        "            if shown is None and delivery.attempts > 99:\n",
        SENDING + "test_a_text_that_slack_took_without_saying_so_is_found_and_not_sent_again",
    ),
    Bug(
        "an edit is sent although Slack asks to wait",
        f"{DIRECTORY}/client.py",
        '        is_message, as_app = method.startswith("chat."), method',
        '        is_message, as_app = method.startswith("chat.p"), method',
        SENDING + "test_one_budget_of_the_account_holds_for_messages_and_their_changes",
    ),
    Bug(
        "the client library sends a message again whose answer was lost",
        f"{DIRECTORY}/client.py",
        "session=self._opened(), retry_handlers=[])",
        "session=self._opened())",
        SENDING + "test_words_whose_answer_was_lost_are_not_shown_twice[act_and_drop]",
    ),
    Bug(
        "the token goes to whatever host a file is said to lie on",
        f"{DIRECTORY}/client.py",
        "        if not self._is_ours(url):\n",
        '        if not url.startswith("http"):\n',
        f"{DIRECTORY}/test_files.py::test_the_token_goes_to_slack_alone",
    ),
    Bug(
        "threads are not caught up",
        f"{DIRECTORY}/loop.py",
        "        for chat in [*chats, *reversed(threads[-MOST_THREADS:])]:\n",
        "        for chat in chats:\n",
        CATCHING_UP + "test_a_restart_catches_up_and_answers_nothing_twice[sqlite]",
    ),
    Bug(
        "the first start answers what another gateway has answered",
        f"{DIRECTORY}/loop.py",
        "            if event.user == me.user_id and after is None and self._alive_at is None:\n",
        "            if event.user is None:\n",
        CATCHING_UP + "test_the_first_start_does_not_answer_what_was_answered_before[sqlite]",
    ),
    Bug(
        "messages of an outage are answered however old they are",
        "channels/catch_up.py",
        "            if each.platform_id not in passed_over:\n",
        "            if each is not None:\n",
        CATCHING_UP + "test_of_old_messages_and_those_beyond_the_most_owners_are_told_once[sqlite]",
    ),
    Bug(
        "a reply whose beginning may have arrived is a first attempt",
        "engine/deliveries/outbox.py",
        "        may_be_shown=shown is not None and shown.platform_id is None,\n",
        "",
        "engine/deliveries/test_live.py::test_words_that_may_have_arrived_are_not_sent_again_and_the_log_tells[sqlite]",
    ),
    Bug(
        "a channel is not told that a text still grows",
        "engine/deliveries/live.py",
        "replaces=stream.message, is_growing=True, asker=view.asker)",
        "replaces=stream.message, asker=view.asker)",
        "engine/deliveries/test_live.py::test_a_channel_learns_that_a_text_grows_and_whom_it_answers[sqlite]",
    ),
)
