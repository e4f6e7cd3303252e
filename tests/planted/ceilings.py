"""Bugs in what sessions take in, and in what calls and prompts carry."""

from tests.planted.bug import Bug

CEILINGS = "engine/access/test_ceilings.py::"
WORKSPACES = "engine/sessions/test_workspace_flow.py::"
SILENT = "engine/sessions/test_silent_words.py::"

BUGS = (
    Bug(
        "no silent word moves a session that holds as much",
        "engine/ledger/append.py",
        "    return taint is None or is_held(made_of, taint)",
        "    return taint is None",
        f"{SILENT}test_a_silent_word_at_the_taint_of_its_session_moves_it[sqlite]",
    ),
    Bug(
        "a child begins above its clearance",
        "engine/children/spawn.py",
        "decide_above(agent.classification.join(parent.taint).join(command.caller.carried), clearance)",
        "decide_above(parent.taint, clearance)",
        f"{CEILINGS}test_a_child_is_not_spawned_above_its_clearance[sqlite]",
    ),
    Bug(
        "a workspace is not made of what used it",
        "engine/runs/lifecycle.py",
        "    if use is not None and held.join(use.left) != held:",
        "    if use is None:",
        f"{WORKSPACES}test_a_workspace_is_made_of_the_contexts_that_used_it[sqlite]",
    ),
)
