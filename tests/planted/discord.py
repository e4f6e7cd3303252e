"""Bugs of the channel Discord."""

from tests.planted.bug import Bug

DIRECTORY = "channels/discord"
SENDING, CHATS, GATEWAY = (f"channels/discord/test_{name}.py::" for name in ("channel", "chats", "gateway"))

BUGS = (
    Bug(
        "threads of one title without a message are one",
        "channels/discord/channel.py",
        "{message_id or uuid4().hex}",
        "{message_id or channel}",
        SENDING + "test_a_thread_without_a_message_of_the_channel_has_one_that_says_its_title",
    ),
    Bug(
        "Discord is not asked to recognise a text that is sent again",
        f"{DIRECTORY}/channel.py",
        '"enforce_nonce": True',
        '"enforce_nonce": False',
        SENDING + "test_a_text_that_is_sent_again_is_seen_once",
    ),
    Bug(
        "a text that Discord has forgotten is not looked for before it is sent again",
        f"{DIRECTORY}/channel.py",
        "            if found is not None:\n",
        "            if False:\n",
        SENDING + "test_a_text_that_is_sent_again_is_seen_once",
    ),
    Bug(
        "a file is looked for by the name that it had before Discord changed it",
        f"{DIRECTORY}/channel.py",
        "each.title or each.filename",
        "each.filename",
        SENDING + "test_a_file_that_is_sent_again_is_seen_once",
    ),
    Bug(
        "of a reply whose beginning was sent without an answer only that is seen",
        f"{DIRECTORY}/channel.py",
        "        if sent.content.strip() != drawn(part).strip():",
        "        if sent.content is None:",
        SENDING + "test_a_text_of_which_only_the_first_words_are_there_becomes_whole",
    ),
    Bug(
        "a text notifies everybody whom it names",
        f"{DIRECTORY}/channel.py",
        '        "allowed_mentions": _NOBODY,\n',
        "",
        SENDING + "test_a_text_notifies_nobody_and_shows_no_preview",
    ),
    Bug(
        "a cancelled request stops all others for good if Discord has asked for a pause",
        f"{DIRECTORY}/client.py",
        "                self._http.go_on()\n",
        "                pass\n",
        SENDING + "test_a_global_limit_holds_for_all_and_ends_for_all",
    ),
    Bug(
        "more is asked for than the budget of a channel allows",
        f"{DIRECTORY}/client.py",
        "            if self.remaining > 0:\n",
        "            if True:\n",
        SENDING + "test_the_budget_of_a_channel_is_kept_by_all_who_send_and_edit",
    ),
    Bug(
        "messages of other bots are answered",
        f"{DIRECTORY}/events.py",
        "self.author.bot or self.author.system or ",
        "",
        CHATS + "test_messages_of_bots_webhooks_and_ones_own_never_trigger[sqlite]",
    ),
    Bug(
        "what no event told is lost",
        f"{DIRECTORY}/loop.py",
        "                await self._catch_up(lease)\n",
        "                pass\n",
        GATEWAY + "test_what_no_event_told_is_found_in_the_history[sqlite]",
    ),
    Bug(
        "a file is fetched from wherever a message says",
        f"{DIRECTORY}/client.py",
        "if host not in FILE_HOSTS and (",
        "if False and (",
        "channels/discord/test_channel.py::test_a_file_is_fetched_only_from_discord",
    ),
    Bug(
        "a gateway that closes each connection at once is asked again and again",
        f"{DIRECTORY}/gateway.py",
        "            if failed > MOST_FAILED:\n",
        "            if failed > 1_000:\n",
        GATEWAY + "test_a_gateway_that_closes_every_connection_at_once_is_not_asked_without_pause[sqlite]",
    ),
)
