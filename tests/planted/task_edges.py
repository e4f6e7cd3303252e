"""Bugs in how tasks are written, made in chats, shown and checked."""

from tests.planted.bug import Bug

WRITTEN = "domain/test_written_task.py::"
SENTENCES = "domain/test_written_sentences.py::"
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
        "domain/written_rest.py",
        '    if phrase is None or before in ("at", "@"):\n        return True\n',
        '    if phrase is None or before == "@":\n        return True\n',
        SENTENCES + "test_what_is_not_read_whole_is_refused_with_what_was_understood",
    ),
    Bug(
        "an afternoon is a morning",
        "domain/written_clocks.py",
        '    hour = hour if half is None else hour % 12 + 12 * (half == "pm")\n    is_shaped',
        '    hour = hour if half is None else hour % 12 + 12 * (half == "am")\n    is_shaped',
        WRITTEN + "test_a_time_is_found_in_an_ordinary_sentence",
    ),
    Bug(
        "what follows a time is taken for the prompt",
        "domain/written_sentences.py",
        "        if phrase is not None:\n            check_rest(sentence, phrase)\n",
        "        if phrase is not None:\n",
        SENTENCES + "test_no_time_is_saved_without_what_follows_it",
    ),
    Bug(
        "words before a time of day are not looked at",
        "domain/written_sentences.py",
        "    _check_before(sentence, begin, phrase)\n    return phrase\n",
        "    return phrase\n",
        SENTENCES + "test_what_is_not_read_whole_is_refused_with_what_was_understood",
    ),
    Bug(
        "a day and a time of day that stand apart make a task",
        "domain/written_sentences.py",
        "            _check_apart(sentence, phrase)\n",
        "",
        SENTENCES + "test_what_is_not_read_whole_is_refused_with_what_was_understood",
    ),
    Bug(
        "a date that can be read in two ways is read in one",
        "domain/written_dates.py",
        "    if one != two and max(one, two) <= 12:\n",
        "    if one != two and max(one, two) < 1:\n",
        SENTENCES + "test_what_is_not_read_whole_is_refused_with_what_was_understood",
    ),
    Bug(
        "today is the day of the settings' zone",
        "domain/written_times.py",
        "now.astimezone(ZoneInfo(zone))",
        "now",
        SENTENCES + "test_today_is_the_day_of_the_zone_that_is_named",
    ),
    Bug(
        "words that sound as if a time came once",
        "domain/schedule.py",
        "    for pattern, written in _AGAIN:\n",
        "    for pattern, written in ():\n",
        SENTENCES + "test_a_schedule_in_words_is_read_as_the_same_schedule",
    ),
    Bug(
        "a new task is not shown back with its prompt",
        "engine/chats/task_commands.py",
        '    return "\\n".join(filter(None, [f"{_name(task)}: {_when(task)}", _prompt(task, length)]))\n',
        '    return f"{_name(task)}: {_when(task)}"\n',
        COMMANDS + "test_a_new_task_belongs_to_its_chat_and_is_shown_with_its_next_times[sqlite]",
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
        "            return command.sub is Subcommand.APPROVE or (is_group and not command.is_reading)\n",
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
