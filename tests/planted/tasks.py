"""Bugs in tasks: their slots, rights and runs."""

from tests.planted.bug import Bug

FIRING, TASKS, STORE = "engine/schedules/firing.py", "engine/schedules/tasks.py", "store/tasks.py"

RESULTS = "engine/schedules/test_results.py"

BUGS = (
    Bug(
        "a silent task leaves a record in its chat",
        "engine/reports/follow.py",
        "    if is_silent and may_flow:\n",
        "    if False:\n",
        f"{RESULTS}::test_silence_leaves_nothing_and_an_error_says_so[sqlite-silent]",
    ),
    Bug(
        "whether a task was silent shows in a chat that may not read what it read",
        "engine/reports/follow.py",
        "    if is_silent and may_flow:\n",
        "    if is_silent:\n",
        f"{RESULTS}::test_a_silent_result_above_its_chat_says_as_much_as_one_that_speaks[sqlite]",
    ),
    Bug(
        "a task's result above its chat stands there",
        "engine/reports/follow.py",
        "    may_flow = may_tell(held, chat.taint)\n",
        "    may_flow = True\n",
        f"{RESULTS}::test_a_result_above_its_chat_waits_for_a_yes_and_starts_nothing[sqlite-True]",
    ),
    Bug(
        "an accepted result of a task starts a run of its chat",
        "engine/reports/follow.py",
        "    if report.is_of_task:\n",
        "    if False:\n",
        f"{RESULTS}::test_a_result_above_its_chat_waits_for_a_yes_and_starts_nothing[sqlite-True]",
    ),
    Bug(
        "each try of a task leaves a record in its chat",
        "engine/firings/ends.py",
        "    return ended.task if is_told and not ended.is_tried_again else None\n",
        "    return ended.task if is_told else None\n",
        f"{RESULTS}::test_silence_leaves_nothing_and_an_error_says_so[sqlite-to be tried again]",
    ),
    Bug(
        "results go to a chat in which the task's maker takes no part",
        "engine/schedules/destinations.py",
        "    if reaches_all(by.standing) or await rows.is_participant(",
        "    if True or await rows.is_participant(",
        f"{RESULTS}::test_the_chat_of_another_session_is_ones_own_or_does_not_exist[sqlite]",
    ),
    Bug(
        "results go to a group in which another agent answers by now",
        "engine/schedules/destinations.py",
        "await _present(query, rules, task.place, maker)",
        "await _present(query, rules, task.place)",
        "channels/telegram/test_tasks.py::test_a_group_in_which_another_agent_answers_by_now_gets_nothing[sqlite]",
    ),
    Bug(
        "a task fires although the chat of its results was deleted",
        FIRING,
        "        has_place=not found.is_gone,\n",
        "        has_place=True,\n",
        f"{RESULTS}::test_a_chat_that_is_deleted_pauses_the_task_and_says_what_to_do[sqlite]",
    ),
    Bug(
        "a maker without a chat of their own is told at each firing",
        FIRING,
        "    if begun.found.lacks_chat == (task.why is Why.NO_OWN_CHAT):\n",
        "    if begun.found.lacks_chat is False:\n",
        f"{RESULTS}::test_one_without_a_chat_of_their_own_is_refused_and_told_once_if_it_goes[sqlite]",
    ),
    Bug(
        "a task's result stands in the prompt without its fence",
        "agents/prompt.py",
        "        return message.report is not None  # a task's result, not what a task asks for\n",
        "        return False\n",
        "agents/test_prompt.py::test_a_tasks_result_is_fenced_as_data_and_what_a_task_asks_for_is_not",
    ),
    Bug(
        "a task's work is done twice because its run failed after a step",
        "engine/firings/ends.py",
        "    return any(isinstance(event.message, AssistantMessage) for event in events)\n",
        "    return False\n",
        "engine/schedules/test_firing.py::test_errors_back_off_and_ten_in_a_row_pause_the_task_and_tell_its_maker[sqlite]",
    ),
    Bug(
        "the session of a task is opened by hand",
        "engine/sessions/sessions.py",
        "    if is_of_task(key_of(command)):\n",
        "    if False:\n",
        "engine/schedules/test_tasks.py::test_the_session_of_a_task_is_not_opened_or_written_by_hand[sqlite]",
    ),
)
