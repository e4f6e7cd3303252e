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
    Bug(
        "a description is trusted whoever said it",
        "engine/checkpoints/steps.py",
        "session.description_made_of.with_integrity(session.taint.integrity)",
        "session.description_made_of",
        "engine/checkpoints/test_checkpoint_flow.py::test_a_note_made_of_a_description_is_worth_what_the_described_words_are[sqlite]",
    ),
)
