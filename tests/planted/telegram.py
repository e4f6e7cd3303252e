"""Bugs of the channel Telegram."""

from tests.planted.bug import Bug

DIRECTORY = "channels/telegram"

JOINED = "channels/telegram/test_joined_messages.py"
HELD = "engine/chats/test_held_messages.py"
CITATIONS = "channels/telegram/test_citations.py"
NAMES = "channels/telegram/test_chat_names.py::"
TO_GROUPS = "channels/telegram/test_messages_to_groups.py::"

BUGS = (
    Bug(
        "a reply into a lost topic is given up",
        "engine/deliveries/deliveries.py",
        "is_moved = failure.code == THREAD_GONE and claimed",
        "is_moved = failure.code == GONE and claimed",
        "channels/telegram/test_replies.py::"
        "test_a_reply_into_a_topic_that_is_lost_stands_in_the_group_and_says_so[sqlite-TOPIC_CLOSED]",
    ),
    Bug(
        "a reply from a lost topic does not say so",
        "engine/deliveries/deliverer.py",
        'before = "" if claimed.moved_from is None else MOVED',
        'before = ""',
        "channels/telegram/test_replies.py::"
        "test_a_reply_into_a_topic_that_is_lost_stands_in_the_group_and_says_so[sqlite-TOPIC_CLOSED]",
    ),
    Bug(
        "each picture of an album is a message",
        "domain/joining.py",
        "    if inbound.album is not None and inbound.album == last.album:\n        return True\n",
        "",
        "domain/test_joining.py::test_what_belongs_together[two of an album]",
    ),
    Bug(
        "a forward beside a comment is the sender's own words",
        "domain/joining.py",
        "CitationKind.FORWARD, Whose.OTHER, text, name",
        "CitationKind.FORWARD, Whose.SENDER, text, name",
        "domain/test_joining.py::test_a_forward_beside_a_comment_is_a_citation_and_the_comment_is_the_senders_own",
    ),
    Bug(
        "messages wait for their parts without end",
        "engine/chats/holding.py",
        "until_ms = min(held.held_at + waits.most_ms, at_ms + waits.part_ms)",
        "until_ms = at_ms + waits.part_ms",
        f"{JOINED}::test_each_part_lets_the_others_wait_again_and_five_seconds_are_the_most[sqlite]",
    ),
    Bug(
        "a text waits although the next one stands alone",
        "engine/chats/holding.py",
        "        await held_messages.close(tx, held, at_ms)\n",
        "",
        f"{JOINED}::test_a_text_in_a_direct_chat_waits_a_moment_and_two_texts_are_two_messages[sqlite]",
    ),
    Bug(
        "a command overtakes what was written before it",
        "engine/chats/reception.py",
        "            await self._post_before(inbound, lease)\n",
        "            pass\n",
        f"{JOINED}::test_a_command_waits_for_nothing_joins_nothing_and_acts_after_what_was_written[sqlite]",
    ),
    Bug(
        "a part that comes again has no answer",
        "engine/chats/take_in.py",
        "    for platform_id in (inbound.platform_id, *inbound.part_ids):\n",
        "    for platform_id in (inbound.platform_id, *inbound.part_ids)[:1]:\n",
        f"{HELD}::test_parts_have_the_first_answer_of_their_message[sqlite]",
    ),
    Bug(
        "a part is lost that came while its message was posted",
        "store/held_messages.py",
        'WHERE id = ? AND parts = ?"\n',
        'WHERE id = ? AND parts > ? - 99"\n',
        f"{HELD}::test_a_part_that_comes_while_its_message_is_posted_is_kept[sqlite]",
    ),
    Bug(
        "texts that wait a moment take the places of files",
        "engine/chats/held.py",
        "        if not held.files:  # it takes no time, and so nobody's place\n",
        "        if False:\n",
        f"{HELD}::test_a_text_waits_for_nobodys_files_in_other_chats[sqlite]",
    ),
    Bug(
        "an answer to the bot's own words makes its session untrusted",
        "domain/citations.py",
        "if citation.whose is Whose.AGENT and not is_agents else citation",
        "if citation.whose is Whose.AGENT else citation",
        f"{CITATIONS}::test_an_answer_to_the_bots_own_words_keeps_what_they_were_made_of[sqlite]",
    ),
    Bug(
        "people whom Antiphon's own texts quote are trusted where those are answered",
        "engine/chats/citing.py",
        "is_agents=sent is not None and sent.session is not None)",
        "is_agents=sent is not None)",
        "attacks/test_cited_notices.py::test_what_is_answered_is_no_more_trusted_than_whoever_said_it"
        "[sqlite-stranger whose words are passed on, telegram: in the question whether to admit them]",
    ),
    Bug(
        "notes are public once the answer that shows them is answered",
        "engine/chats/take_in.py",
        "            await _say(tx, command, answer, made_of=made_of)",
        "            await _say(tx, command, answer)",
        "attacks/test_cited_notices.py::test_notes_stay_as_secret_as_they_are_where_the_answer_with_them_is_answered"
        "[sqlite-tool result, telegram: shown by /memory]",
    ),
    Bug(
        "words that nobody sent to the chat pass for the agent's",
        "domain/citations.py",
        "return replace(citation, whose=Whose.OTHER) if",
        "return citation if",
        f"{CITATIONS}::test_what_a_message_answers_stands_with_it[sqlite-a message of the bot that nobody sent here]",
    ),
    Bug(
        "words of somebody else that are answered are trusted",
        "domain/message.py",
        "return self.attribution is not None or any(each.whose is Whose.OTHER for each in self.cites)",
        "return self.attribution is not None",
        f"{CITATIONS}::test_what_a_message_answers_stands_with_it[sqlite-another person's]",
    ),
    Bug(
        "a later part of a long reply is not known as the agent's",
        "store/deliveries.py",
        "return next((text for text in texts if platform_id in text.parts), None)",
        "return next((text for text in texts if platform_id in text.parts[:1]), None)",
        f"{CITATIONS}::test_an_answer_to_a_later_part_of_a_long_reply_is_known_as_well[sqlite]",
    ),
    Bug(
        "the address behind a word is lost",
        "domain/citations.py",
        'pieces += [text[begin : link.end], f" ({address})"]',
        "pieces += [text[begin : link.end]]",
        f"{CITATIONS}::test_addresses_behind_words_stand_in_the_text[sqlite]",
    ),
    Bug(
        "tables reach people as bars",
        f"{DIRECTORY}/channel.py",
        "    table_width=TABLE_WIDTH,\n",
        "",
        "channels/telegram/test_replies.py::test_a_table_in_a_reply_is_seen_with_columns[sqlite]",
    ),
    Bug(
        "an agent writes to groups in which another agent answers",
        "engine/chats/answered.py",
        "    if route.agent_id != wanted.caller.agent_id:\n        return None\n",
        "",
        TO_GROUPS + "test_all_other_groups_are_answered_like_one_that_there_is_not[sqlite]",
    ),
    Bug(
        "a user's agent writes to groups in which that user takes no part",
        "engine/chats/answered.py",
        "return session is not None and await sessions.is_participant(query, session.row, str(principal))",
        "return session is not None",
        TO_GROUPS + "test_all_other_groups_are_answered_like_one_that_there_is_not[sqlite]",
    ),
    Bug(
        "a message to a group passes the send policy of the group's session",
        "engine/deliveries/outgoing.py",
        "        decisions.append(may_send_to_group(group.place, group.key, group.override, rules))\n",
        "        pass\n",
        TO_GROUPS + "test_a_group_whose_session_may_not_send_gets_nothing[sqlite]",
    ),
    Bug(
        "a message to the owner does not use a webhook that is the owner's",
        "engine/deliveries/outgoing.py",
        'if f"{each.channel}:{each.account_id}" in rules.sinks.owners:',
        "if False:",
        "channels/test_webhook.py::"
        "test_a_message_to_the_owner_goes_to_a_webhook_on_which_everybody_is_the_owner[sqlite]",
    ),
    Bug(
        "a child's copy of the conversation counts for nobody",
        "engine/children/spawn.py",
        "        await rows.add_stored_bytes(tx, child.row, str(standing.principal), copied)\n",
        "",
        "channels/telegram/test_forks_of_chats.py::"
        "test_the_copy_counts_for_the_guest_who_lets_it_be_made_and_is_refused_before_a_row_is_written[sqlite]",
    ),
    Bug(
        "a chat that several people share is called like the last of them",
        "store/names.py",
        "s.source_kind = 'channel' AND s.kind <> 'main' ",
        "s.source_kind <> '' ",
        NAMES + "test_every_surface_calls_a_chat_what_its_platform_calls_it_now[sqlite]",
    ),
    Bug(
        "a list shows what a chat is called to everybody who sees its row",
        "store/sessions.py",
        "_DISPLAYED: when(base, DISPLAY_NAME),",
        "_DISPLAYED: Condition(DISPLAY_NAME),",
        NAMES + "test_nobody_reads_the_name_of_a_chat_that_they_may_not_see_or_that_is_above_them[sqlite]",
    ),
    Bug(
        "a group keeps its old title until somebody writes there",
        "channels/telegram/updates.py",
        "if change := _read_title(message, position) or _read_members(message, position):",
        "if change := _read_members(message, position):",
        NAMES + "test_every_surface_calls_a_chat_what_its_platform_calls_it_now[sqlite]",
    ),
    Bug(
        "people see whose words a message answers, and not which",
        "domain/message.py",
        'words = f": “{begin}”" if begin else ""',
        'words = ""',
        f"{CITATIONS}::test_the_page_and_the_history_say_what_is_answered[sqlite]",
    ),
    Bug(
        "the chat of somebody who is admitted has no name until they write again",
        "engine/chats/pairing.py",
        "    await chat_names.put(tx, inbound.place, who.name)\n",
        "",
        f"{NAMES}test_the_chat_of_somebody_who_is_admitted_has_their_name_at_once[sqlite]",
    ),
    Bug(
        "whoever follows a list sees a new name only once the chat is written in",
        "store/chat_names.py",
        "        tx.wake(SessionRow(session))\n",
        "        SessionRow(session)\n",
        NAMES + "test_who_follows_the_list_is_told_of_a_new_name[sqlite]",
    ),
    Bug(
        "Antiphon's own text is rendered like an agent's",
        f"{DIRECTORY}/channel.py",
        "return render(part.text) if part.spans is None else verbatim(part.text, part.spans)",
        "return render(part.text)",
        "attacks/test_requests.py::"
        "test_what_the_chat_shows_is_what_runs[tool result, telegram: a command between backticks]",
    ),
    Bug(
        "Telegram fetches the addresses in a text for a preview",
        f"{DIRECTORY}/channel.py",
        "_NO_PREVIEW = LinkPreviewOptions(is_disabled=True)",
        "_NO_PREVIEW = LinkPreviewOptions(is_disabled=False)",
        "channels/telegram/test_channel.py::test_a_text_is_sent_with_its_markup_and_the_message_has_an_id",
    ),
    Bug(
        "a text with refused markup is given up",
        f"{DIRECTORY}/channel.py",
        "            return await act(drawn.written, [])\n",
        "            raise\n",
        "channels/telegram/test_channel.py::test_markup_that_is_refused_is_sent_once_more_as_it_was_written",
    ),
    Bug(
        "a message that is replaced by the same text fails",
        f"{DIRECTORY}/channel.py",
        'if "not modified" in error.message.lower():',
        "if False:",
        "channels/telegram/test_channel.py::"
        "test_replacing_a_message_by_the_same_text_succeeds_and_one_that_is_gone_fails_for_good",
    ),
    Bug(
        "a bot that was blocked tries again and again",
        f"{DIRECTORY}/client.py",
        "                code=GONE,\n                is_permanent=True,\n",
        "                code=GONE,\n",
        "channels/telegram/test_channel.py::test_a_blocked_bot_and_an_unknown_chat_are_gone",
    ),
    Bug(
        "the log of the HTTP client holds the token",
        f"{DIRECTORY}/client.py",
        "return self._token not in record.getMessage()",
        "return True",
        "channels/telegram/test_channel.py::test_no_log_holds_the_token_or_an_answer",
    ),
    Bug(
        "the log holds answers that cannot be read",
        f"{DIRECTORY}/client.py",
        "    @staticmethod\n    def parse_json_payload(",
        "    @staticmethod\n    def parse_payload(",
        "channels/telegram/test_channel.py::test_no_log_holds_the_token_or_an_answer",
    ),
    Bug(
        "messages of other bots are taken in",
        f"{DIRECTORY}/updates.py",
        "if sender is None or sender.is_bot or message.sender_chat",
        "if sender is None or message.sender_chat",
        "channels/telegram/test_updates.py::test_what_is_no_message_of_a_person_is_passed_over[given6]",
    ),
    Bug(
        "buttons under messages of other bots are pressed",
        f"{DIRECTORY}/updates.py",
        "shown.sender is None or shown.sender.id != me.id or",
        "shown.sender is None or",
        "channels/telegram/test_updates.py::test_what_is_no_message_of_a_person_is_passed_over[given11]",
    ),
    Bug(
        "an answer outside topics is a thread of its own",
        f"{DIRECTORY}/updates.py",
        "message.message_thread_id if message.is_topic_message else None",
        "message.message_thread_id",
        "channels/telegram/test_updates.py::test_a_topic_is_a_thread_and_an_answer_outside_topics_is_not",
    ),
    Bug(
        "every message of a topic that the bot opened is meant for it",
        f"{DIRECTORY}/updates.py",
        "        and origin.forum_topic_created is None\n",
        "",
        "channels/telegram/test_updates.py::"
        "test_a_message_of_a_group_is_meant_if_it_names_answers_or_commands_the_bot[more12-False]",
    ),
    Bug(
        "messages of two chats have one id",
        f"{DIRECTORY}/updates.py",
        'f"{me.id}:{message.chat.id}:{message.message_id}"',
        'f"{me.id}:{message.message_id}"',
        "channels/telegram/test_updates.py::test_a_message_of_a_direct_chat_names_its_chat_and_its_sender_by_numbers",
    ),
    Bug(
        "anybody may post updates",
        f"{DIRECTORY}/webhook.py",
        "hmac.compare_digest(given.encode(), self._secret.encode()) and account == ACCOUNT",
        "account == ACCOUNT",
        "channels/telegram/test_posted_updates.py::"
        "test_a_posted_update_is_taken_in_once_if_its_secret_is_right[sqlite]",
    ),
    Bug(
        "an update that cannot be read stops the bot",
        f"{DIRECTORY}/intake.py",
        "        except ValidationError as error:",
        "        except KeyError as error:",
        "channels/telegram/test_chats.py::test_updates_that_mean_nothing_hold_up_nothing[sqlite]",
    ),
    Bug(
        "the webhook of another program is deleted",
        f"{DIRECTORY}/loop.py",
        "elif (await self._client.find_hook()).url.endswith(WEBHOOK_PATH):",
        "elif (await self._client.find_hook()).url:",
        "channels/telegram/test_loop.py::test_a_webhook_of_somebody_else_is_left_alone_and_told[sqlite]",
    ),
    Bug(
        "doctor disturbs a gateway that polls",
        "cli/homes/telegram_checks.py",
        "may_poll=not is_running",
        "may_poll=True",
        "channels/telegram/test_checks.py::test_a_bot_that_works_is_in_order",
    ),
    Bug(
        "a file is read to its end, however large it is",
        f"{DIRECTORY}/client.py",
        "                    if len(found) > most_bytes:\n                        raise FileTooLarge\n",
        "                if len(found) > most_bytes:\n                    raise FileTooLarge\n",
        "channels/telegram/test_chats.py::"
        "test_a_file_that_is_larger_than_was_said_is_not_read_to_its_end[sqlite-document]",
    ),
    Bug(
        "lists of deliveries show codes",
        "wire/deliveries.py",
        "without_codes(delivery.text) if delivery.session is None else delivery.text",
        "delivery.text",
        "channels/telegram/test_posted_updates.py::test_a_list_of_deliveries_holds_no_codes[sqlite]",
    ),
    Bug(
        "a message is lost whose id somebody else has used",
        "engine/chats/entry.py",
        '    if isinstance(entered, Refusal) and entered.error.code == "message_id_reused":\n',
        '    if isinstance(entered, Refusal) and entered.error.code == "":\n',
        "channels/telegram/test_chats.py::test_nobody_keeps_a_message_out_by_using_its_id_first[sqlite]",
    ),
    Bug(
        "debug logs hold the token and the texts of the bot",
        f"{DIRECTORY}/client.py",
        'logging.getLogger("telegram").setLevel(logging.WARNING)',
        'logging.getLogger("telegram").setLevel(logging.DEBUG)',
        "channels/telegram/test_chats.py::test_no_log_holds_the_token_or_what_is_said[sqlite]",
    ),
)
