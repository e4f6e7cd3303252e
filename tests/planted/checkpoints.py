"""Bugs in checkpoints and in summaries: when, over which range, by whom, and what is made of them."""

from tests.planted.bug import Bug

CLAIMS = "engine/checkpoints/test_checkpoint_claims.py"
SUMMARIES = "tools/test_summarize.py"

BUGS = (
    Bug(
        "a checkpoint of a living process is taken over",
        "engine/checkpoints/steps.py",
        "    if stored.run is not None and await processes.is_alive(tx, stored.process):\n",
        "    if False:\n",
        f"{CLAIMS}::test_a_process_whose_checkpoint_was_taken_over_changes_nothing[sqlite]",
    ),
    Bug(
        "the topic begins with the conversation",
        "engine/views/summary_inputs.py",
        "checkpoint is None else checkpoint.through_seq)\n",
        "checkpoint is None else 0)\n",
        f"{SUMMARIES}::test_a_topic_is_what_came_after_the_last_checkpoint[sqlite]",
    ),
)
