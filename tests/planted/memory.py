"""Bugs in what is remembered, and whose it is."""

from tests.planted.bug import Bug

RUNS = "engine/memory/test_remembering.py"
NOTES = "engine/memory/test_memory.py"

BUGS = (
    Bug(
        "a chat of several persons has the memory of the first",
        "policy/memory.py",
        "        case (person,):\n",
        "        case (person, *_):\n",
        f"{RUNS}::test_a_chat_of_several_persons_has_nobodys_memory[sqlite]",
    ),
    Bug(
        "hooks and scheduled tasks have a memory",
        "policy/memory.py",
        "    if session.source.kind not in WITH_PEOPLE or session.parent is not None or asker.is_suspended:\n",
        "    if asker.is_suspended:\n",
        f"{RUNS}::test_sessions_without_people_have_no_memory[sqlite]",
    ),
    Bug(
        "another's note is changed by its id",
        "engine/memory/notes.py",
        " or not (note.is_shared or note.holder == scope.holder):",
        ":",
        f"{NOTES}::test_another_scopes_note_is_not_found_even_by_its_id[sqlite]",
    ),
)
