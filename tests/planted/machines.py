"""Bugs in which programs are treated as people, and replies are shown in spite of a change."""

from tests.planted.bug import Bug

MACHINES = "channels/test_machines.py::"
OPERATIONS = MACHINES + "test_each_operation_refuses_a_program_and_says_what_to_do[sqlite]"
JUDGED = "engine/deliveries/test_live_judged.py::"
CHANGED = JUDGED + "test_nothing_more_is_shown_once_the_chat_may_not_have_it"
KILLED = "channels/telegram/test_kill_points.py::test_a_gateway_that_is_killed_after_a_commit_loses_and_doubles_nothing"

BUGS = (
    Bug(
        "a hook is no program",
        "policy/machines.py",
        "    if identity.channel in (HOOK, NODE):\n",
        "    if identity.channel in (NODE,):\n",
        MACHINES + "test_which_accounts_programs_speak_with",
    ),
    Bug(
        "who once took a node in is a program",
        "policy/machines.py",
        "    own = (account for account in accounts if account.person_id == person)\n",
        "    own = iter(accounts)\n",
        MACHINES + "test_which_accounts_programs_speak_with",
    ),
    Bug(
        "a program is promoted",
        "engine/access/people.py",
        "    is_promoted = command.role not in (None, PersonRole.GUEST)\n",
        "    is_promoted = False\n",
        OPERATIONS,
    ),
    Bug(
        "a program that was promoted once keeps its role",
        "engine/access/people.py",
        "    is_promoted = command.role not in (None, PersonRole.GUEST)\n",
        "    is_promoted = command.role is not None\n",
        MACHINES + "test_a_program_that_has_become_an_owner_can_be_made_a_guest_again[sqlite]",
    ),
    Bug(
        "a person is merged into a program",
        "engine/access/people.py",
        "    for person in (source, target):\n",
        "    for person in (source,):\n",
        OPERATIONS,
    ),
    Bug(
        "an account is admitted into a program",
        "engine/chats/pairing.py",
        "    return None if command.into is None else await refuse_machine(query, rules, command.into)\n",
        "    return None\n",
        OPERATIONS,
    ),
    Bug(
        "an invited person gets the id of a program's account",
        "engine/access/people.py",
        "    if is_id_of_account(person.id) or not await rows.insert(tx, person):\n",
        "    if not await rows.insert(tx, person):\n",
        MACHINES + "test_an_invited_person_never_gets_the_id_of_an_account[sqlite]",
    ),
    Bug(
        "the settings link an account to a program",
        "engine/chats/who.py",
        "    return None if is_machine else person\n",
        "    return person\n",
        MACHINES + "test_settings_that_link_an_account_to_a_node_link_it_to_nobody[sqlite]",
    ),
    Bug(
        "the bot hears itself",
        "policy/reception.py",
        "    if knock.is_suspended or knock.is_machine:\n",
        "    if knock.is_suspended:\n",
        MACHINES + "test_a_bot_is_heard_nowhere_and_gets_no_code[sqlite]",
    ),
    Bug(
        "the program of a channel speaks for the bot",
        "engine/sessions/senders.py",
        "    if refusal := refuse_machine_account(command.rights.rules, command.identity):\n        return refusal\n",
        "",
        MACHINES + "test_a_channels_program_does_not_speak_for_the_bot_itself[sqlite]",
    ),
    Bug(
        "a reply is shown on although sending was switched off",
        "engine/deliveries/live.py",
        "lambda: _outdate(stream))\n",
        "lambda: None)\n",
        CHANGED + "[sqlite-sending is switched off]",
    ),
    Bug(
        "a reply is shown on although its reader's rights have changed",
        "engine/deliveries/live.py",
        "            for row in (NAMES, outbox.PLACES):\n",
        "            for row in (outbox.PLACES,):\n",
        "channels/telegram/test_live_replies.py::"
        "test_who_may_not_read_it_any_more_sees_no_more_of_a_reply[sqlite-demote]",
    ),
    Bug(
        "a reply is shown on in a group that an owner has closed",
        "engine/deliveries/showing.py",
        " and not _is_closed(group, rules)\n",
        "\n",
        CHANGED + "[sqlite-an owner refuses the group]",
    ),
    Bug(
        "a reply is shown on in a chat that was routed elsewhere",
        "store/routes.py",
        "    tx.wake(PLACES)\n",
        "",
        CHANGED + "[sqlite-the chat is routed elsewhere]",
    ),
    Bug(
        "a draft that was refused by a chat that is gone becomes a message",
        "engine/deliveries/live.py",
        "        if failed.code == GONE:\n            stream.is_mute = True\n",
        "",
        JUDGED + "test_a_chat_that_blocked_the_bot_gets_no_message_in_place_of_the_draft[sqlite]",
    ),
    Bug(
        "a reply replaces a message of another chat",
        "engine/deliveries/outbox.py",
        "    if shown is not None and shown.place != place:\n",
        "    if shown is None and False:\n",
        JUDGED + "test_a_reply_whose_session_moved_to_another_place_leaves_nothing_at_the_old_one[sqlite]",
    ),
    Bug(
        "a reply that stays in the log leaves its beginning outside",
        "engine/deliveries/outbox.py",
        "    if run.place is not None and not is_external(place):\n",
        "    if not is_external(place):\n",
        JUDGED + "test_a_reply_whose_place_is_the_log_now_leaves_nothing_outside[sqlite]",
    ),
    Bug(
        "after a crash, a reply in parts begins again",
        "engine/deliveries/deliverer.py",
        "        sent = claimed.parts\n",
        "        sent = ()\n",
        KILLED + "[a reply in parts-settle_part]",
    ),
)
