"""Bugs in tasks: their slots, rights and runs."""

from tests.planted.bug import Bug

FIRING, TASKS, STORE = "engine/schedules/firing.py", "engine/schedules/tasks.py", "store/tasks.py"

BUGS = (
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
