"""Bugs in the hash chains and in what is recorded beside the logs."""

from tests.planted.bug import Bug

LOGS = "engine/audit/test_logs.py"
TRAIL = "engine/audit/test_trail.py"
SEALS = "engine/audit/test_seals.py"

BUGS = (
    Bug(
        "an event's hash leaves out its payload",
        "store/log_hashes.py",
        "    return row\n",
        "    return row[:-1]\n",
        f"{LOGS}::test_a_finding_names_the_place",
    ),
    Bug(
        "pruning forgets the hash of what it prunes",
        "store/events.py",
        "    await log_hashes.prune(tx, session, seq)\n",
        "",
        f"{LOGS}::test_what_happens_to_logs_leaves_their_chains_whole[sqlite]",
    ),
    Bug(
        "a deleted log leaves no last hash",
        "store/sessions.py",
        "chain_from = head, ",
        "chain_from = NULL, ",
        f"{LOGS}::test_what_happens_to_logs_leaves_their_chains_whole[sqlite]",
    ),
    Bug(
        "a fork begins as any log",
        "store/log_hashes.py",
        '        return {"head": self.hash, "chain_from": self.hash, ',
        "        return {",
        f"{LOGS}::test_a_fork_begins_with_the_head_of_its_source[sqlite]",
    ),
    Bug(
        "an event takes the person of another over whose hash it never had",
        "store/log_check.py",
        "    return before == person or person in merged.get(str(before), ())",
        "    return True",
        f"{LOGS}::test_a_person_who_becomes_another_leaves_the_chains_whole[sqlite]",
    ),
    Bug(
        "a refusal leaves no row",
        "engine/audit/trail.py",
        "    return isinstance(error, Denied) or error.asked_for is not None",
        "    return isinstance(error, Denied)",
        f"{TRAIL}::test_a_refusal_is_a_row_that_names_the_input[sqlite]",
    ),
    Bug(
        "each refusal is a row of its own",
        "store/audit.py",
        "        (tx.process, caller, digest, codec.json_text(content), tx.now_ms),",
        "        (tx.process, caller, digest + tx.random_hex(8), codec.json_text(content), tx.now_ms),",
        f"{TRAIL}::test_equal_refusals_of_a_minute_are_one_row_with_a_count[sqlite]",
    ),
    Bug(
        "a caller fills the disk with names",
        "engine/audit/trail.py",
        "            if len(inputs) >= MOST_INPUTS:",
        "            if len(inputs) >= 1_000_000:",
        f"{TRAIL}::test_nobody_fills_the_disk_with_names[sqlite]",
    ),
    Bug(
        "a read of private data is not recorded",
        "engine/views/history.py",
        "        await self._trail.read(principal, page.session.row, [*page.events, *page.endings])\n",
        "",
        f"{TRAIL}::test_what_a_person_reads_above_public_is_a_row_an_hour[sqlite]",
    ),
    Bug(
        "a seal is not held against the home",
        "engine/audit/check.py",
        "            if self._seals.get(seal.n) != seal.hash:",
        "            if False:",
        f"{SEALS}::test_a_home_that_was_rolled_back_is_found",
    ),
    Bug(
        "a log may be cut off below what was sealed",
        "store/log_check.py",
        "    has_sealed = max(sealed, default=0) <= max(last, log.last_seq)",
        "    has_sealed = True",
        f"{SEALS}::test_a_log_that_was_cut_off_with_its_head_is_found_by_the_seal",
    ),
    Bug(
        "seals of any home are taken",
        "engine/audit/audits.py",
        "        if kept and not ours:",
        "        if False:",
        f"{SEALS}::test_a_head_of_another_home_is_refused",
    ),
)
