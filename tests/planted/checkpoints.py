"""Bugs in checkpoints and in summaries: when, over which range, by whom, and what is made of them."""

from tests.planted.bug import Bug

CHECKPOINTS = "engine/checkpoints/test_checkpoints.py"
CLAIMS = "engine/checkpoints/test_checkpoint_claims.py"
FLOW = "engine/checkpoints/test_checkpoint_flow.py"
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
        "a process that lost its checkpoint ends it all the same",
        "engine/checkpoints/steps.py",
        "(stored.run, stored.fence) == (fence.run, fence.number)",
        "stored.run == fence.run",
        f"{CLAIMS}::test_a_process_whose_checkpoint_was_taken_over_changes_nothing[sqlite]",
    ),
    Bug(
        "a checkpoint that was taken over goes on counting what it used",
        "store/checkpoints.py",
        '        "WHERE incarnation = ? AND fence = ? AND run = ?",\n',
        '        "WHERE incarnation = ? AND fence >= ? AND run = ?",\n',
        f"{CLAIMS}::test_a_process_whose_checkpoint_was_taken_over_changes_nothing[sqlite]",
    ),
    Bug(
        "a failed checkpoint moves the cursor",
        "engine/checkpoints/steps.py",
        '    columns |= {"failures": failures, "again_at": again}\n',
        '    columns |= {"failures": failures, "again_at": again, "through_seq": stored.reads_seq}\n',
        f"{CHECKPOINTS}::test_a_failed_checkpoint_moves_nothing_and_the_next_covers_the_same_range[sqlite]",
    ),
    Bug(
        "a checkpoint begins beside a turn",
        "domain/checkpoint.py",
        "    if due.is_busy:\n",
        "    if due.is_busy and due.asked is None:\n",
        f"{CHECKPOINTS}::test_a_turn_does_not_wait_for_a_checkpoint_and_none_begins_beside_a_turn[sqlite]",
    ),
    Bug(
        "a checkpoint begins again without anything new",
        "domain/checkpoint.py",
        "    return CheckpointAnswer.ASKED if has_news else CheckpointAnswer.NOTHING_NEW\n\n\ndef on_left",
        "    return CheckpointAnswer.ASKED\n\n\ndef on_left",
        f"{CHECKPOINTS}::test_a_checkpoint_needs_something_new_and_leaves_no_events_without_it[sqlite]",
    ),
    Bug(
        "what a checkpoint uses does not count in the caps",
        "engine/checkpoints/steps.py",
        "    if used.is_counted:\n",
        "    if False:\n",
        f"{CHECKPOINTS}::test_what_a_checkpoint_uses_counts_in_the_caps_and_stands_in_the_ledger[sqlite]",
    ),
    Bug(
        "a checkpoint writes less classified than it read",
        "agents/introspection.py",
        "                *(entry.classification for entry in entries),\n",
        "",
        f"{FLOW}::test_what_a_checkpoint_writes_has_the_join_of_what_it_read[sqlite]",
    ),
    Bug(
        "a checkpoint reads what the place may not have",
        "engine/checkpoints/reading.py",
        "        return list(admitted(transcript.prompt_for(NO_RUN), self._begun.ceiling))\n",
        "        return list(transcript.prompt_for(NO_RUN))\n",
        f"{FLOW}::test_what_is_above_the_place_stays_out_of_a_checkpoint[sqlite]",
    ),
    Bug(
        "a summary raises nobody",
        "agents/summaries.py",
        "made_of=asked.made_of, usage=usage)\n",
        "made_of=asked.session.base, usage=usage)\n",
        f"{SUMMARIES}::test_a_summary_raises_who_is_told_it_to_all_that_it_was_made_of[sqlite]",
    ),
    Bug(
        "a summary holds what the place may not have",
        "engine/views/summary_inputs.py",
        "            entries=list(admitted(entries, found.ceiling)),\n",
        "            entries=entries,\n",
        f"{SUMMARIES}::test_a_summary_leaves_out_what_the_place_of_the_answer_may_not_have[sqlite]",
    ),
    Bug(
        "the topic begins with the conversation",
        "engine/views/summary_inputs.py",
        "checkpoint is None else checkpoint.through_seq)\n",
        "checkpoint is None else 0)\n",
        f"{SUMMARIES}::test_a_topic_is_what_came_after_the_last_checkpoint[sqlite]",
    ),
    Bug(
        "what a summary uses does not count in its run",
        "agents/loop.py",
        "            usage=output.usage,\n",
        "",
        f"{SUMMARIES}::test_what_a_summary_uses_counts_in_the_run_the_session_and_the_caps[sqlite]",
    ),
)
