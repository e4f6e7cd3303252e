"""Bugs of files that agents send."""

from tests.planted.bug import Bug

SENT = "tools/test_sent_files.py::"

BUGS = (
    Bug(
        "a file goes where what the workspace holds may not",
        "engine/deliveries/outgoing.py",
        "made_of = made_of.join(session.workspace)",
        "made_of = made_of.join(made_of)",
        SENT + "test_a_file_is_as_secret_as_what_its_workspace_holds[sqlite]",
    ),
    Bug(
        "another file than was approved is sent",
        "engine/deliveries/outgoing.py",
        "if caller.files and words_of_files(listed) != caller.files:",
        "if caller.files and not listed:",
        SENT + "test_what_was_approved_is_what_is_sent[sqlite]",
    ),
    Bug(
        "an approval covers a file that nobody could see",
        "agents/approving.py",
        "return UNREAD_FILES if foreseen is None else foreseen.files",
        'return "" if foreseen is None else foreseen.files',
        SENT + "test_a_file_that_was_not_there_when_somebody_was_asked_is_not_sent[sqlite]",
    ),
    Bug(
        "the bytes of files that nobody sends again are kept for ever",
        "store/deliveries.py",
        "WHERE d.status IN ('dead', 'suppressed') AND d.ended_at < ? \"",
        "WHERE d.status IN ('sent') AND d.ended_at < ? \"",
        SENT + "test_bytes_that_nobody_tries_to_send_again_are_forgotten_and_a_retry_says_so[sqlite]",
    ),
    Bug(
        "a retry sends the text of files that are gone",
        "engine/deliveries/deliveries.py",
        "        await refuse_without_files(tx, delivery)\n",
        "        pass\n",
        SENT + "test_bytes_that_nobody_tries_to_send_again_are_forgotten_and_a_retry_says_so[sqlite]",
    ),
    Bug(
        "a secret in a file leaves because nothing is taken out of the text",
        "engine/deliveries/output_rules.py",
        "    if not any(said.redact(text).stretches for text in texts):",
        "    if not any(said.redact(text).stretches for text in texts[:0]):",
        SENT + "test_a_file_that_holds_what_a_rule_takes_out_is_held_back_whole[sqlite]",
    ),
    Bug(
        "the bytes of files that were sent are kept for ever",
        "engine/deliveries/deliveries.py",
        "    await outbox.delete_files(tx, claimed)\n",
        "",
        SENT + "test_files_go_after_the_text_to_where_the_reply_goes_and_their_bytes_are_forgotten[sqlite]",
    ),
    Bug(
        "a repeated call reads its files again",
        "engine/deliveries/outgoing.py",
        "    if place != sent.place or sent.text != command.text or names != command.names:",
        "    if place != sent.place or sent.text != command.text or sent.files != deliveries.listed(command.files):",
        SENT + "test_a_repeated_call_sends_the_bytes_that_were_stored_once[sqlite]",
    ),
)
