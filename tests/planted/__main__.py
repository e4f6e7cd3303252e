"""`make planted`: plants each bug in turn; each has to turn its test red, which is green without it.

With arguments only those bugs whose name, file or test contains one of them.
"""

import os
import sys
import time
from collections import Counter

from tests.planted.bug import Bug
from tests.planted.planting import Finding, Verdict, judge_all
from tests.planted.registry import BUGS

OUTPUT_LINES = 30
"""Of pytest, for a bug that was not found."""


def is_asked_for(bug: Bug, words: list[str]) -> bool:
    return not words or any(word in part for word in words for part in (bug.name, bug.file, bug.test))


def show(finding: Finding) -> None:
    bug = finding.bug
    print(f"{finding.verdict:9}  {finding.seconds:5.1f} s  {bug.file:34}  {bug.name}  ({bug.test})", flush=True)


def main(words: list[str]) -> int:
    began = time.monotonic()
    findings = judge_all(
        (bug for bug in BUGS if is_asked_for(bug, words)), workers=(os.cpu_count() or 1) + 1, on_finding=show
    )
    missed = [finding for finding in findings if finding.verdict is not Verdict.FOUND]
    for finding in missed:
        print(
            f"\n{finding.verdict}: {finding.bug.name}\n{finding.bug.file}: {finding.bug.old!r} -> {finding.bug.new!r}"
        )
        print("\n".join(finding.output.splitlines()[-OUTPUT_LINES:]))
    packages = Counter(finding.bug.package for finding in findings)
    print(f"\n{', '.join(f'{package} {count}' for package, count in sorted(packages.items()))}")
    print(f"{len(findings) - len(missed)} of {len(findings)} found in {time.monotonic() - began:.0f} s")
    return 1 if missed or not findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
