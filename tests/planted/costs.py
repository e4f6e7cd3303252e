"""Bugs of what a person may cost: files, messages that wait, backlogs."""

from tests.planted.bug import Bug

COPIES = "engine/access/test_costs_of_copies.py"
RECEIVED = "engine/chats/test_received_files.py"

BUGS = (
    Bug(
        "commands write where files of people lie",
        "tools/sandbox/profile.py",
        'yield ("--ro-bind", str(profile.shown.received)',
        'yield ("--bind", str(profile.shown.received)',
        f"{RECEIVED}::test_a_command_reads_what_was_received_and_cannot_change_it",
    ),
    Bug(
        "a large fork is one unit",
        "engine/sessions/forks.py",
        "        if page and size + grown > PAGE_BYTES:\n",
        "        if False:\n",
        "engine/sessions/test_forks_in_pages.py::test_others_write_between_the_pages_of_a_large_fork[sqlite]",
    ),
    Bug(
        "metadata grows each time that its session is opened",
        "engine/sessions/metadata.py",
        "    merged = {**before, **given}\n",
        "    merged = {**given}\n",
        f"{COPIES}::test_metadata_does_not_grow_by_opening_again_and_counts_for_who_writes_it",
    ),
)
