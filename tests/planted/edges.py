"""Bugs in tools, the Model Context Protocol, channels and the gateway."""

from tests.planted.bug import Bug

BUGS = (
    Bug(
        "a restore makes directories of any depth",
        "backups.py",
        '        if len(parts) > _MAX_DEPTH + 1 or len(member.name.encode("utf-8", "surrogateescape")) > _MAX_NAME:',
        "        if not parts:",
        "cli/test_backup.py::test_directories_that_are_deeper_than_any_backup_break_no_later_restore",
    ),
    Bug(
        "a backup holds the owner's token",
        "backups.py",
        "SETTINGS = (TOML_NAME, JSON5_NAME)",
        'SETTINGS = (TOML_NAME, JSON5_NAME, "owner.token")',
        "cli/test_backup.py::test_a_backup_without_a_gateway_holds_settings_and_workspaces_but_no_token",
    ),
    Bug(
        "an unsent message of the page is not kept",
        "gateway/page/static/outbox.js",
        "    await this.keep(() => this.stored.put(message));",
        "    await this.keep(() => Promise.resolve());",
        "gateway/test_outbox.py::test_an_unsent_message_outlives_its_tab",
    ),
    Bug(
        "a tab takes the browser's connection for its own",
        "gateway/page/static/connection.js",
        "    this.tabs.add(tab);\n",
        "    this.tabs = new Set([tab]);\n",
        "gateway/test_page_live.py::test_ten_tabs_share_one_socket_and_all_show_a_new_message",
    ),
    Bug(
        "the tools of an outside agent send the token to who has the address of a gateway that ended",
        "cli/connection/remote.py",
        "if event == CONNECTED and address.must_prove:",
        "if event == CONNECTED and False:",
        "attacks/test_files.py::test_a_program_that_takes_the_address_of_an_ended_gateway_gets_nothing_of_an_outside_agents_tools",
    ),
    Bug(
        "scheduled sessions stand among the chats",
        "store/trees.py",
        "\"s.kind NOT IN ('cron', 'hook', 'node')\"",
        "\"s.kind NOT IN ('hook', 'node')\"",
        "gateway/test_page_list.py::test_scheduled_and_archived_sessions_stand_behind_filters_with_counts",
    ),
    Bug(
        "the rows of a list take no room from its messages",
        "tools/sessions_list.py",
        "MAX_ANSWER_BYTES - ENVELOPE_BYTES - size)",
        "MAX_ANSWER_BYTES - ENVELOPE_BYTES)",
        "tools/test_session_tools.py::test_answers_with_messages_are_never_larger_than_80_kib[sqlite]",
    ),
    Bug(
        "a row past the room of its list says nothing of its messages",
        "tools/sessions_list.py",
        '            room = 0\n            row["messagesOmitted"] = True\n',
        "            room = 0\n",
        "tools/test_session_tools.py::test_messages_of_a_list_are_the_newest_without_tool_results_and_within_80_kib[sqlite]",
    ),
    Bug(
        "a message that was delivered is told to be lost",
        "tools/sessions_send.py",
        '        shown["delivered"] = True',
        '        shown["delivered"] = False',
        "engine/exchanges/test_exchanges.py::test_a_wait_that_times_out_ends_the_wait_and_the_reply_comes_late[sqlite]",
    ),
    Bug(
        "half a surrogate pair goes through",
        "tools/session_tool.py",
        "        self._check_text(named)\n",
        "",
        "tools/test_session_tools.py::test_half_a_surrogate_pair_is_refused_with_its_place[sqlite-sessions_send-arguments5-invalid_arguments-message]",
    ),
    Bug(
        "a message of an MCP server may be of any size",
        "mcp/bounded.py",
        "        if self._size > MAX_MESSAGE_BYTES:",
        "        if self._size < 0:",
        "mcp/test_bounded.py::test_an_error_stands_for_a_message_that_is_too_large_and_others_come_as_they_are",
    ),
)
