"""Bugs in who may write on channels, and to which session."""

from tests.planted.bug import Bug

RECEPTION = "engine/chats/test_reception.py::"
PAIRING = "engine/chats/test_pairing.py::"
LINKING = "engine/chats/test_linking.py::"
GROUPS = "engine/chats/test_groups.py::"
QUESTIONS = "engine/chats/test_questions.py::"
ROUTES = "engine/chats/test_routes.py::"

FOREIGN = "channels/telegram/test_foreign_words.py::"

BUGS = (
    Bug(
        "a forwarded command is the command of who passes it on",
        "engine/chats/take_in.py",
        'inbound.attribution is None and inbound.text.lstrip().startswith("/")',
        'inbound.text.lstrip().startswith("/")',
        FOREIGN + "test_a_strangers_forward_that_waited_is_still_a_forward[sqlite]",
    ),
    Bug(
        "a forwarded code links the account of who passes it on",
        "engine/chats/take_in.py",
        "if inbound.attribution is not None or inbound.images",
        "if inbound.images",
        FOREIGN + "test_a_strangers_forward_that_waited_is_still_a_forward[sqlite]",
    ),
    Bug(
        "a forwarded message is as trusted as who passes it on",
        "policy/flow.py",
        "is_trusted(standing) and attribution is None",
        "is_trusted(standing)",
        FOREIGN + "test_words_that_are_not_the_senders_are_a_message_of_theirs_and_no_command[sqlite-inline bot]",
    ),
    Bug(
        "a forward stands in the prompt as the sender's words",
        "agents/prompt.py",
        "    if message.attribution is not None:\n        fence =",
        "    if message.attribution is None:\n        fence =",
        FOREIGN + "test_a_model_sees_a_forward_as_data_with_its_author_between_marks[sqlite]",
    ),
    Bug(
        "a mention in a forward addresses the bot",
        "channels/telegram/updates.py",
        "(attribution is None and _is_meant(message, me))",
        "_is_meant(message, me)",
        FOREIGN + "test_a_mention_in_a_forward_does_not_address_the_bot[sqlite]",
    ),
    Bug(
        "a message that comes again is taken in again",
        "engine/chats/take_in.py",
        "    if (first := await arrivals.find(tx, arrival)) is not None:\n        return Received(",
        "    if (first := await arrivals.find(tx, arrival)) is None:\n        pass\n    elif first.posted is None:\n"
        "        return Received(",
        RECEPTION
        + "test_a_message_that_comes_again_finds_its_first_session_though_its_chat_is_routed_elsewhere[sqlite]",
    ),
    Bug(
        "a process that was given up takes messages in",
        "store/channel_accounts.py",
        'f"ELSE COALESCE(CAST(? AS BIGINT), position) END WHERE {_NAMED} AND fence = ? AND process IS NOT NULL"',
        'f"ELSE COALESCE(CAST(? AS BIGINT), position) END WHERE {_NAMED} AND fence >= ? AND process IS NOT NULL"',
        RECEPTION + "test_a_process_that_was_given_up_stores_nothing[sqlite]",
    ),
    Bug(
        "a lease that ends too late is believed",
        "store/channel_accounts.py",
        "(process IS NULL OR process = ? OR served_until <= ? OR served_until > ? ",
        "(process IS NULL OR process = ? OR served_until <= ? OR served_until > 2 * ? ",
        RECEPTION + "test_a_lease_that_ends_later_than_any_could_is_over[sqlite]",
    ),
    Bug(
        "equal ids of two platforms are one peer",
        "domain/keys.py",
        'return parse_key(f"agent:{agent_id}:{channel}:direct:{peer_id}")\n',
        'return parse_key(f"agent:{agent_id}:direct:{peer_id}")\n',
        "domain/test_keys.py::test_equal_ids_of_two_platforms_are_never_one_peer",
    ),
    Bug(
        "a chat of a linked person is a peer of its own",
        "engine/chats/who.py",
        "    if person != identity.person_id:\n        return person\n",
        "    if person != identity.person_id:\n        return None\n",
        RECEPTION + "test_the_chats_of_a_linked_person_are_one_session_per_peer[sqlite]",
    ),
    Bug(
        "a session that is opened by a channel's key has the namespace of programs",
        "engine/sessions/sessions.py",
        'if channel is None or not has_namespace(f"{channel}:id"):',
        "if channel is not None or not has_namespace(str(target)):",
        RECEPTION + "test_a_session_that_is_opened_by_a_channels_key_over_http_has_the_channels_namespace[sqlite]",
    ),
    Bug(
        "a suspended sender is heard",
        "policy/reception.py",
        "    if knock.is_suspended or knock.is_machine:\n        return Admission.IGNORE\n",
        "",
        "policy/test_reception.py::test_a_suspended_person_is_never_heard",
    ),
    Bug(
        "a guest is told of each message that was not taken in",
        "engine/chats/take_in.py",
        "    if command.inbound.is_meant and not command.was_told:\n",
        "    if command.inbound.is_meant:\n",
        RECEPTION + "test_a_guest_who_writes_too_often_is_told_once[sqlite]",
    ),
    Bug(
        "any number of strangers get codes",
        "policy/reception.py",
        "    if knock.was_told or knock.open_pairings >= MOST_PAIRINGS:\n",
        "    if knock.was_told:\n",
        PAIRING + "test_a_thousand_strangers_get_three_codes_and_no_session[sqlite]",
    ),
    Bug(
        "a member of a group is admitted to direct chats",
        "engine/chats/who.py",
        "if who.is_linked and who.standing.principal.name != identity.person_id:",
        "if who.is_linked:",
        PAIRING + "test_a_member_of_a_group_still_has_to_be_admitted_to_a_direct_chat[sqlite]",
    ),
    Bug(
        "a code for a stranger never ends",
        "store/pairings.py",
        "f\"{_SELECT} WHERE state = 'open' AND expires_at > ? ORDER BY id\", (now_ms,)",
        "f\"{_SELECT} WHERE state = 'open' AND created_at <= ? ORDER BY id\", (now_ms,)",
        PAIRING + "test_a_sender_gets_one_answer_an_hour_and_the_code_ends_with_it[sqlite]",
    ),
    Bug(
        "anybody admits people",
        "policy/rights.py",
        'Act.CHATS: (PersonRole.OWNER, "',
        'Act.CHATS: (PersonRole.GUEST, "',
        PAIRING + "test_only_owners_see_and_decide_who_waits[sqlite]",
    ),
    Bug(
        "a person who was removed stays admitted",
        "store/people.py",
        '"DELETE FROM pairings WHERE channel = ? AND account = ? AND platform_id = ?"',
        "\"DELETE FROM pairings WHERE channel = ? AND account = ? AND platform_id = ? AND state = 'open'\"",
        PAIRING + "test_a_person_who_was_removed_has_to_be_admitted_anew[sqlite]",
    ),
    Bug(
        "a code that links an account never ends",
        "store/link_codes.py",
        '"SELECT code_hash, person FROM link_codes WHERE code_hash = ? AND expires_at > ?"',
        '"SELECT code_hash, person FROM link_codes WHERE code_hash = ? AND created_at <= ?"',
        LINKING + "test_a_code_is_good_for_an_hour[sqlite]",
    ),
    Bug(
        "wrong codes are not counted",
        "engine/chats/linking.py",
        "        await link_codes.note_wrong(tx, sender, at_ms=at_ms, since_ms=since_ms)\n",
        "",
        LINKING + "test_after_five_wrong_codes_a_sender_waits_for_an_hour[sqlite]",
    ),
    Bug(
        "a code takes an account from its person",
        "engine/chats/linking.py",
        "    return Linked.TAKEN if is_taken else Linked.LINKED, person",
        "    return Linked.LINKED, person",
        LINKING + "test_a_code_takes_no_account_from_a_user[sqlite]",
    ),
    Bug(
        "a suspended person's code links an account",
        "engine/chats/linking.py",
        "person = None if standing is None or is_guest(standing) else",
        "person = None if standing is None else",
        LINKING + "test_a_suspended_person_makes_no_codes_and_theirs_link_nobody[sqlite]",
    ),
    Bug(
        "a code outlives the role of its maker",
        "engine/chats/linking.py",
        "person = None if standing is None or is_guest(standing) else",
        "person = None if standing is None or standing.is_suspended else",
        LINKING + "test_a_guest_makes_no_codes_and_those_of_a_former_user_link_nobody[sqlite]",
    ),
    Bug(
        "a guest's code lets another account in",
        "engine/chats/linking.py",
        '    if is_guest(standing):\n        return Refusal(Denied(NO_GUESTS, code="forbidden"))\n',
        "",
        LINKING + "test_a_guest_makes_no_codes_and_those_of_a_former_user_link_nobody[sqlite]",
    ),
    Bug(
        "whoever writes by the owner's webhook gets a code of the owner",
        "engine/chats/link_commands.py",
        "    if chat.is_shared:\n        return SHARED\n",
        "",
        "channels/test_chat_commands.py::test_a_webhook_that_speaks_for_the_owner_links_nobody[sqlite]",
    ),
    Bug(
        "a group is answered before an owner allows it",
        "engine/chats/groups.py",
        "        case None:\n            return GroupStanding.UNKNOWN\n",
        "        case None:\n            return GroupStanding.ALLOWED\n",
        GROUPS + "test_owners_are_asked_once_even_if_the_bot_never_saw_itself_being_added[sqlite]",
    ),
    Bug(
        "any number of groups ask for an owner",
        "engine/chats/groups.py",
        "    if await rows.count_asked(tx, place.channel, account) >= MOST_ASKED:\n        return\n",
        "",
        GROUPS + "test_many_groups_at_once_do_not_flood_the_owners[sqlite]",
    ),
    Bug(
        "a group that moves begins anew",
        "engine/chats/entry.py",
        "    id = place.to if group is None else group.group_id\n",
        "    id = place.to if group is None else group.address\n",
        GROUPS + "test_a_group_that_moves_keeps_its_session_and_its_permission[sqlite-False]",
    ),
    Bug(
        "an answer goes to the old id of a group that moved",
        "store/channel_groups.py",
        "        (codec.place_text(new), codec.place_text(old)),\n",
        "        (codec.place_text(old), codec.place_text(old)),\n",
        GROUPS + "test_an_answer_that_is_under_way_follows_its_group[sqlite]",
    ),
    Bug(
        "two editors of a route overwrite one another",
        "engine/chats/routing.py",
        "    if expected not in (None, before) or not",
        "    if not",
        ROUTES + "test_two_editors_of_a_route_do_not_overwrite_one_another[sqlite]",
    ),
    Bug(
        "a thread does not follow its chat's agent",
        "engine/chats/routing.py",
        "chosen = next((route.agent_id for route in stored if route.agent_id is not None), None)",
        "chosen = None if own is None else own.agent_id",
        ROUTES + "test_a_thread_follows_its_chats_agent_unless_it_has_a_route[sqlite]",
    ),
    Bug(
        "a question to owners stays open when it is decided",
        "engine/deliveries/questions.py",
        "    outcome = await _outcome(tx, subject)\n    if outcome is None:\n",
        "    outcome = await _outcome(tx, subject)\n    if outcome is not None:\n",
        QUESTIONS + "test_a_question_shows_the_answer_that_was_given_elsewhere[sqlite]",
    ),
    Bug(
        "a question that was sent twice keeps the buttons of one",
        "engine/deliveries/outbox.py",
        "    if not shown or any(each.platform_id == message for each in shown):\n",
        "    if shown or any(each.platform_id == message for each in shown):\n",
        QUESTIONS + "test_a_question_that_was_sent_twice_loses_the_buttons_of_both[sqlite]",
    ),
    Bug(
        "a question goes to somebody who is no owner",
        "engine/deliveries/questions.py",
        "    if standing is None or isinstance(decide_act(standing, Act.CHATS), Deny):\n        return None\n",
        "    if standing is None or not isinstance(decide_act(standing, Act.CHATS), Deny):\n        return None\n",
        QUESTIONS + "test_a_question_does_not_go_to_somebody_who_is_no_owner_any_more[sqlite]",
    ),
    Bug(
        "what came in is not remembered",
        "engine/chats/take_in.py",
        "    await arrivals.store(tx, arrival, ArrivalRow(received.outcome",
        "    None and await arrivals.store(tx, arrival, ArrivalRow(received.outcome",
        "engine/chats/test_deaths.py::test_a_command_is_carried_out_once_whenever_the_process_dies[sqlite]",
    ),
)
