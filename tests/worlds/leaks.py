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
)
"""What information flow has to be checked against, each once in `LEAKS`."""


def after(act: str) -> str:
    """The test that asks everything after the act."""
    return f"worlds/test_worlds.py::test_no_question_tells_of_this_act[{act}]"


LEAKS = (
    Bug(
        "filter after limit",
        "store/sessions.py",
        """        found += await _list_branch(query, [branch, *conditions], limit)
    found.sort(""",
        """        found += await _list_branch(query, conditions, limit)
    seen = set[object]()
    for branch in await branches(query, reach):
        statement = f"SELECT s.id FROM sessions s JOIN incarnations i ON i.id = s.incarnation WHERE {branch.text}"
        seen.update(row[0] for row in await query.fetch_all(statement, branch.values))
    found = list({each.row: each for each in found if each.row in seen}.values())
    found.sort(""",
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
        after("open a session above"),
    ),
    Bug(
        "search snippet",
        "store/search.py",
        'messages = flow("m.", reach.clearance)',
        'messages = flow("m.", EVERYTHING)',
        after("a word above in a participant's room"),
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
