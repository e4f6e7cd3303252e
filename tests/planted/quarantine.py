"""Bugs by which words get out of quarantine."""

from tests.planted.bug import Bug

_TESTS = "engine/children/test_quarantine.py::"
BUGS = (
    Bug(
        "a child in quarantine may send",
        "agents/toolset.py",
        "            if Effect.READS in entry.effects and entry.effects <= {Effect.READS, Effect.LEAVES}\n",
        "            if entry.effects <= {Effect.READS, Effect.LEAVES}\n",
        f"{_TESTS}test_typed_values_come_back_trusted_and_texts_as_references[sqlite]",
    ),
    Bug(
        "a result made of a reference is trusted",
        "agents/carrying_out.py",
        "    source = output.classification.join(call.carried)\n",
        "    source = output.classification\n",
        f"{_TESTS}test_a_reference_beside_the_routes_does_not_ask_and_distrusts_the_result[sqlite]",
    ),
    Bug(
        "words made of a reference are trusted elsewhere",
        "engine/access/caller.py",
        "    return (session.taint if caller.run is None else caller.run.made_of).join(caller.carried)\n",
        "    return session.taint if caller.run is None else caller.run.made_of\n",
        f"{_TESTS}test_words_made_of_a_reference_stay_untrusted_in_another_session[sqlite]",
    ),
    Bug(
        "a reference says where to unasked",
        "agents/approving.py",
        "        is_steered = context.is_steered(call.message_seq) or refers_in_routes(call, tool)\n",
        "        is_steered = context.is_steered(call.message_seq)\n",
        f"{_TESTS}test_a_reference_of_a_tool_that_declares_no_routes_asks[sqlite]",
    ),
    Bug(
        "each child of a run has bits of its own",
        "engine/reports/quarantined.py",
        "    left = MAX_MILLIBITS - ENDED_MILLIBITS - await quarantine.count_millibits(tx, told.scope.chain)\n",
        "    left = MAX_MILLIBITS - ENDED_MILLIBITS\n",
        f"{_TESTS}test_what_all_children_of_a_run_tell_is_bounded[sqlite]",
    ),
    Bug(
        "a reference is good for every run",
        "store/quarantine.py",
        '        f"WHERE v.session = ? AND v.incarnation = ? AND v.chain = ? AND v.id IN ({marks})",\n',
        '        f"WHERE v.session = ? AND v.incarnation = ? AND v.chain <> ? AND v.id IN ({marks})",\n',
        f"{_TESTS}test_a_reference_is_of_one_run_and_stands_alone[sqlite]",
    ),
    Bug(
        "a child in quarantine words its result",
        "engine/reports/follow.py",
        " or await spawns.find_returns(query, child.row) is not None:\n",
        ":\n",
        f"{_TESTS}test_a_child_in_quarantine_words_nothing_for_a_channel[sqlite]",
    ),
    Bug(
        "a wait brings what a child in quarantine said",
        "engine/children/wait.py",
        "                told = await _told(tx, report, run)\n",
        "                told = run\n",
        f"{_TESTS}test_a_withheld_result_of_quarantine_is_accepted_as_values[sqlite]",
    ),
    Bug(
        "a reset leaves the values",
        "engine/sessions/resets.py",
        "    await quarantine.delete_of_session(tx, session.row)\n",
        "",
        f"{_TESTS}test_a_reset_and_a_deletion_forget_the_values[sqlite]",
    ),
)
