"""Bugs in commands of chats."""

from tests.planted.bug import Bug

E2E = "channels/test_chat_commands.py::"
FLOW = (
    "gateway/test_command_flow.py::test_an_answer_names_no_label_and_counts_no_tokens_of_a_session_above_public[sqlite]"
)

BUGS = (
    Bug(
        "a command to another bot is carried out",
        "domain/commands.py",
        "    if bot is not None and (bot_name is None or bot.lower() != bot_name.lower()):\n",
        '    if bot == "":\n',
        "domain/test_commands.py::test_a_command_to_another_bot_is_none_of_ours",
    ),
    Bug(
        "a command in another form is a message for the agent",
        "domain/commands.py",
        '    return _read(name, (rest or "").strip()) or ChatCommand(name=name, usage=f"Usage: {USAGE[name]}")\n',
        '    return _read(name, (rest or "").strip())\n',
        "domain/test_commands.py::"
        "test_a_command_in_another_form_is_told_its_forms_and_never_reaches_the_agent[/agent frob-agent]",
    ),
    Bug(
        "users switch the agent of a chat",
        "policy/commands.py",
        "            return command.sub is Subcommand.SWITCH\n",
        "            return False\n",
        "policy/test_commands.py::test_owners_may_all_users_most_and_guests_what_concerns_their_own_chat",
    ),
    Bug(
        "guests begin a new conversation in a group",
        "policy/commands.py",
        "            return is_group\n",
        "            return False\n",
        "policy/test_commands.py::test_the_conversation_of_a_group_is_changed_by_owners_alone",
    ),
    Bug(
        "a command of somebody who may not use it is carried out",
        "engine/chats/commands.py",
        "    if not may_use(chat, command, rules):\n        if is_owners",
        "    if chat.standing.is_suspended:\n        if is_owners",
        f"{E2E}test_a_command_of_somebody_who_may_not_use_it_is_consumed_with_a_line_in_the_log[sqlite]",
    ),
    Bug(
        "a command that comes again is carried out again",
        "engine/chats/peer_chats.py",
        "    if first is None or command.is_reading:\n",
        "    if answer:\n",
        f"{E2E}test_a_command_that_comes_again_is_carried_out_once[sqlite]",
    ),
    Bug(
        "a message that comes again goes to the session that its chat uses now",
        "engine/chats/peer_chats.py",
        "    if pinned is None or pinned.posted is None:\n",
        "    if pinned is None or pinned.posted is None or route.is_stored:\n",
        f"{E2E}test_a_message_that_comes_again_finds_its_first_answer_wherever_the_chat_is_now[sqlite]",
    ),
    Bug(
        "a list of sessions in a chat names labels that not everybody there may read",
        "engine/chats/session_commands.py",
        "rows.list_page(query, as_public(reach), where,",
        "rows.list_page(query, reach, where,",
        FLOW,
    ),
    Bug(
        "a key in a chat tells a label that not everybody there may read",
        "engine/chats/session_commands.py",
        "    return session.label is None and base_of_chats(session.key) != session.key\n",
        "    return False\n",
        FLOW,
    ),
    Bug(
        "the status in a chat counts what was made of data above public",
        "engine/chats/commands.py",
        "    shown = shown_session(session, PUBLIC)\n",
        "    shown = session\n",
        FLOW,
    ),
    Bug(
        "a code that links accounts is said in a group",
        "engine/chats/link_commands.py",
        "    if chat.chat_type is not ChatType.DIRECT:\n",
        "    if chat.identity is None and chat.chat_type is not ChatType.DIRECT:\n",
        "engine/chats/test_commands.py::test_a_code_is_never_said_in_a_group[sqlite]",
    ),
    Bug(
        "the session before a new one stays in lists",
        "engine/chats/session_commands.py",
        "    if left is not None and left.status is SessionStatus.IDLE:\n",
        "    if left is not None and left.status is SessionStatus.RUNNING:\n",
        f"{E2E}test_a_new_session_has_the_place_and_the_origin_of_the_one_before[sqlite]",
    ),
    Bug(
        "a token that may only write makes codes that link accounts to its person",
        "policy/commands.py",
        "            return ALL_SCOPES\n",
        "            return frozenset()\n",
        "gateway/test_tokens.py::test_a_command_needs_the_scopes_of_what_it_does[sqlite]",
    ),
    Bug(
        "a token without that scope decides requests for approval by a command",
        "policy/commands.py",
        "            return frozenset({TokenScope.APPROVALS})\n",
        "            return frozenset()\n",
        "gateway/test_tokens.py::test_a_command_needs_the_scopes_of_what_it_does[sqlite]",
    ),
    Bug(
        "every command is built before one is carried out",
        "cli/main.py",
        "    if commands or groups:\n",
        "    if commands and groups:\n",
        "cli/test_serve.py::test_a_command_that_asks_a_running_gateway_imports_neither_settings_nor_the_engine",
    ),
)
