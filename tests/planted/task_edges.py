"""Bugs in how tasks are written, made in chats, shown and checked."""

from tests.planted.bug import Bug

WRITTEN = "domain/test_written_task.py::"
COMMANDS = "channels/test_task_commands.py::"
HTTP = "gateway/test_tasks.py::"
TOOL = "tools/test_tasks.py::"

BUGS = (
    Bug(
        "a batch with a wrong line saves the lines before it",
        "engine/chats/task_commands.py",
        "            return error.message if len(written) == 1 else "
        'f"Task {number}: {error.message}\\nNothing was saved."\n',
        "            break\n",
        COMMANDS + "test_three_lines_make_three_tasks_or_none[sqlite]",
    ),
    Bug(
        "a batch may hold other commands",
        "domain/commands.py",
        "    if any(word.lower() != Subcommand.NEW for word, _ in words):\n",
        "    if all(word.lower() != Subcommand.NEW for word, _ in words):\n",
        "domain/test_commands.py::test_several_lines_of_tasks_are_all_new_ones_or_none_is",
    ),
    Bug(
        "an interval with a time of day loses the time",
        "domain/written_times.py",
        "        if kind is WrittenKind.EVERY and _CLOCK_FOLLOWS.match(text, end):\n",
        "        if kind is WrittenKind.IN and _CLOCK_FOLLOWS.match(text, end):\n",
        WRITTEN + "test_what_is_no_task_gets_one_error_that_says_why",
    ),
    Bug(
        "an afternoon is a morning",
        "domain/written_times.py",
        'hour = hour % 12 + (12 if half == "pm" else 0)',
        'hour = hour % 12 + (12 if half == "am" else 0)',
        WRITTEN + "test_a_time_is_found_in_an_ordinary_sentence",
    ),
    Bug(
        "a chat names any task",
        "engine/chats/task_commands.py",
        "    call = TaskCall(rights=occasion.rights(chat), id=id, target=occasion.target(chat))\n",
        "    call = TaskCall(rights=occasion.rights(chat), id=id, target=None)\n",
        HTTP + "test_in_a_chat_a_task_of_another_chat_is_as_if_it_did_not_exist[sqlite]",
    ),
    Bug(
        "a chat lists the tasks of all chats",
        "engine/chats/task_commands.py",
        "    target = None if is_everywhere else occasion.target(chat)\n",
        "    target = None if not is_everywhere else occasion.target(chat)\n",
        COMMANDS + "test_a_chat_lists_its_own_tasks_and_all_only_when_asked[sqlite]",
    ),
    Bug(
        "everybody in a group changes its tasks",
        "policy/commands.py",
        "            return is_group and not command.is_reading\n",
        "            return False\n",
        "policy/test_commands.py::test_the_conversation_of_a_group_is_changed_by_owners_alone",
    ),
    Bug(
        "a preview saves",
        "gateway/operations/tasks.py",
        "    await services.tasks.check(ask.principal)\n",
        "    new = new_task(params.form(params.text), services.rules.task_zone, services.clock.now())\n"
        '    await services.tasks.create(ask.principal, ask.target("main"), (new,))\n',
        HTTP + "test_a_preview_shows_the_day_on_which_clocks_change_and_saves_nothing[sqlite]",
    ),
    Bug(
        "the version of an edit is not compared",
        "gateway/operations/tasks.py",
        "services.tasks.edit(ask.principal, stored.id, edit, version=params.version)",
        "services.tasks.edit(ask.principal, stored.id, edit, version=None)",
        HTTP + "test_of_two_editors_the_second_is_told[sqlite]",
    ),
    Bug(
        "agents of users make tasks unasked",
        "policy/session_tools.py",
        "NEVER_ASK = SESSION_TOOLS - {MESSAGE_TOOL, TASKS_TOOL}\n",
        "NEVER_ASK = SESSION_TOOLS - {MESSAGE_TOOL}\n",
        TOOL + "test_making_one_waits_for_a_yes_unless_the_owner_speaks[sqlite]",
    ),
    Bug(
        "the doctor does not see a zone that is unknown",
        "domain/task_survey.py",
        "        if not is_known(zone):\n",
        "        if not zone:\n",
        "cli/test_tasks.py::test_the_doctor_says_what_keeps_tasks_from_firing",
    ),
)
