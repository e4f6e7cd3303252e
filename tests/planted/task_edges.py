"""Bugs in how tasks are written, made in chats, shown and checked."""

from tests.planted.bug import Bug

SENTENCES = "domain/test_written_sentences.py::"
COMMANDS = "channels/test_task_commands.py::"

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
        "what follows a time is taken for the prompt",
        "domain/written_sentences.py",
        "        if phrase is not None:\n            check_rest(sentence, phrase)\n",
        "        if phrase is not None:\n",
        SENTENCES + "test_no_time_is_saved_without_what_follows_it",
    ),
)
