"""Planted leaks, each with the test of two worlds that has to notice it.

`python -m tests.worlds.leaks` plants them all, one by one, or those whose names contain one of its arguments.
"""

import os
import sys

from tests.planted.__main__ import show
from tests.planted.bug import Bug
from tests.planted.planting import Verdict, judge_all

NAMES = (
    "filter after limit",
    "count over all",
    "cursor with a row",
    "preview unfiltered",
    "error text",
    "search snippet",
    "search order by score",
    "announce unchecked",
    "requester's turn unchecked",
    "SSE backlog",
    "live stream after a rise",
    "delta",
    "spawn at PUBLIC with free text",
    "accepted against not_found",
    "reset keeping the workspace",
    "ended fork at base",
    "message stored PUBLIC",
    "cap text with a sum",
    "requests of sessions above",
    "trusted content of all sessions",
    "what is allowed always, to everybody",
    "open releases counted for everybody",
    "outcome of an approved call",
)
"""What information flow has to be checked against, each once in `LEAKS`."""


def after(act: str) -> str:
    """The test that asks everything after the act."""
    return f"worlds/test_worlds.py::test_no_question_tells_of_this_act[{act}]"


LEAKS = (
    Bug(
        "filter after limit",
        "store/sessions.py",
        "        found += await _list_branch(query, reach.clearance, [branch, *conditions], limit)\n",
        """        seen = await _list_branch(query, reach.clearance, conditions, limit)
        statement = f"SELECT s.id FROM sessions s JOIN incarnations i ON i.id = s.incarnation WHERE {branch.text}"
        rows = {row[0] for row in await query.fetch_all(statement, branch.values)}
        found += [each for each in seen if each.row in rows]
""",
        after("open a session above"),
    ),
    Bug(
        "count over all",
        "store/activities.py",
        "total = next((total for *_, total in rows), 0)",
        'total = (await query.fetch_all(f"SELECT COUNT(DISTINCT session) FROM ({BUSY_SESSIONS}) AS busy"))[0][0]',
        after("ask for approval above"),
    ),
    Bug(
        "cursor with a row",
        "domain/cursors.py",
        'return base64.b32encode(sealed).rstrip(b"=").decode().lower()',
        'return f"{first}.{second}"',
        "worlds/test_worlds.py::test_no_list_counts_the_rows_of_hidden_sessions",
    ),
    Bug(
        "preview unfiltered",
        "store/sessions.py",
        '"s.preview": when(all_of([base, flow("s.preview_", clearance)]), "s.preview")',
        '"s.preview": when(base, "s.preview")',
        after("a word above in a participant's room"),
    ),
    Bug(
        "error text",
        "policy/shown.py",
        "        error=None,\n",
        "        error=run.error,\n",
        after("a failure above in a participant's room"),
    ),
    Bug(
        "search snippet",
        "store/search.py",
        'messages = flow("hit.", reach.clearance)',
        "messages = ANY",
        after("a word above in a participant's room"),
    ),
    Bug(
        "search order by score",
        "store/search.py",
        "ON s.id = found.session ORDER BY found.id DESC",
        "ON s.id = found.session ORDER BY found.id * (1 - 2 * ((SELECT COUNT(*) FROM indexed_messages) % 2))",
        after("say much above"),
    ),
    Bug(
        "announce unchecked",
        "engine/reports/follow.py",
        "        may_flow=may_flow,\n        may_word=may_word,\n        is_origin_over",
        "        may_flow=True,\n        may_word=may_word,\n        is_origin_over",
        "engine/children/test_spawn.py::test_a_child_above_its_requester_says_nothing_to_that_ones_channel[sqlite]",
    ),
    Bug(
        "requester's turn unchecked",
        "engine/exchanges/turns.py",
        "may_flow=may_tell(said.made_of, await _clearance_of_other(query, exchange, sides, said.side)),",
        "may_flow=True,",
        after("a target reads the books for its sender"),
    ),
    Bug(
        "SSE backlog",
        "feed/follow.py",
        'return b"".join(_encoded(self.view, self.clearance, shown))',
        'return b"".join(_encoded(self.view, EVERYTHING, shown))',
        "worlds/test_worlds.py::test_who_comes_late_sees_no_more",
    ),
    Bug(
        "live stream after a rise",
        "feed/follow.py",
        "frames.append(batch.frame_between(self.view, self.clearance, self.cursor, limit))",
        "frames.append(batch.frame_between(self.view, EVERYTHING, self.cursor, limit))",
        after("a word above in a participant's room"),
    ),
    Bug(
        "delta",
        "engine/runs/context.py",
        "Delta(self.run.id, self.last_seq, piece, self.made_of)",
        "Delta(self.run.id, self.last_seq, piece, PUBLIC)",
        after("a streamed word above in a participant's room"),
    ),
    Bug(
        "spawn at PUBLIC with free text",
        "engine/children/spawn.py",
        "label=request.label, taint=parent.taint.join(command.caller.carried), clearance=limit",
        "label=request.label, clearance=limit",
        "engine/children/test_spawn.py::test_a_child_has_its_parents_taint_and_clearance[sqlite]",
    ),
    Bug(
        "accepted against not_found",
        "engine/exchanges/send.py",
        "    if isinstance(sides, _Unseen):\n",
        """    if isinstance(sides, _Unseen) and await rows.find_by_row(tx, sides.requester) is None:
        raise NotFound("Session not found: 'parent'.")
    if isinstance(sides, _Unseen):
""",
        after("a requester rises above its child, and one world deletes it"),
    ),
    Bug(
        "reset keeping the workspace",
        "engine/sessions/resets.py",
        ", workspace_seq=first_seq)",
        ")",
        "engine/sessions/test_workspace_flow.py::test_a_reset_begins_an_empty_workspace_and_the_old_one_stays[sqlite]",
    ),
    Bug(
        "ended fork at base",
        "engine/sessions/forks.py",
        "    return base.join(incarnation.taint)",
        "    return base",
        "engine/access/test_ceilings.py::test_a_fork_of_an_ended_id_has_the_taint_of_that_incarnation[sqlite]",
    ),
    Bug(
        "message stored PUBLIC",
        "policy/flow.py",
        "return route.with_integrity(max(route.integrity, integrity))",
        "return PUBLIC",
        after("a word above in a participant's room"),
    ),
    Bug(
        "cap text with a sum",
        "agents/daily_room.py",
        'return _capped(cap_of_it, f"{cap.tokens} tokens")',
        'return _capped(cap_of_it, f"{spent.tokens} of {cap.tokens} tokens")',
        "worlds/test_budgets.py::test_a_budget_that_is_used_up_tells_no_sum",
    ),
    Bug(
        "requests of sessions above",
        "store/approvals.py",
        "conditions, values = [readable.text], [*readable.values]",
        "conditions, values = ['1 = 1'], []",
        after("trust what was read above"),
    ),
    Bug(
        "trusted content of all sessions",
        "engine/approvals/trusting.py",
        "    refuse_act(standing, Act.TRUST)\n    return await rows.list_page(query, standing.clearance,",
        "    from antiphon.store.people import EVERYTHING\n\n    return await rows.list_page(query, EVERYTHING,",
        after("a known session is trusted with what it read"),
    ),
    Bug(
        "what is allowed always, to everybody",
        "engine/approvals/standing.py",
        "    refuse_act(standing, Act.APPROVE_ALWAYS)\n    return await rows.list_page(query, standing.clearance,",
        "    from antiphon.store.people import EVERYTHING\n\n    return await rows.list_page(query, EVERYTHING,",
        after("allow always above"),
    ),
    Bug(
        "outcome of an approved call",
        "engine/runs/decisions.py",
        "    return replace(approval, outcome=WITHHELD)\n",
        "    return approval\n",
        after("an approved call reads the books"),
    ),
    Bug(
        "open releases counted for everybody",
        "store/approvals.py",
        "conditions, values = [\"a.state = 'pending'\", readable.text], [*readable.values]",
        "conditions, values = [\"a.state = 'pending'\"], []",
        after("message from above"),
    ),
)


def main(words: list[str]) -> int:
    chosen = [leak for leak in LEAKS if not words or any(word in leak.name for word in words)]
    findings = judge_all(chosen, workers=os.cpu_count() or 1, on_finding=show)
    missed = [finding for finding in findings if finding.verdict is not Verdict.FOUND]
    for finding in missed:
        print(f"\n{finding.verdict}: {finding.bug.name}\n" + "\n".join(finding.output.splitlines()[-30:]))
    print(f"{len(findings) - len(missed)} of {len(findings)} leaks found")
    return 1 if missed or not findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
