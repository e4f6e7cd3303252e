"""Plants bugs in a copy of the sources and runs their tests there. The working tree is never changed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from tests.planted.bug import ROOT, SOURCES, Bug

HANGS_SECONDS = 120.0
"""A red test ends long before: its waits do."""
NO_TESTS_FAILED, TESTS_FAILED = 0, 1
"""Exit codes of pytest; any other says that it did not come to run the test."""


class Verdict(StrEnum):
    FOUND = "found"
    SURVIVED = "SURVIVED"
    """The test is green with the bug."""
    NOT_GREEN = "NOT GREEN"
    """The test is not green without the bug."""
    NOT_RUN = "NOT RUN"
    """The test could not be run with the bug, say because it is no Python."""
    HANGS = "HANGS"
    """The test did not end."""


@dataclass(frozen=True, slots=True)
class Finding:
    bug: Bug
    verdict: Verdict
    seconds: float
    output: str
    """Of pytest."""


class SourceCopy:
    """Sources, tests and guides in a directory of their own; one bug at a time stands in them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for name in ("src", "tests", "docs/guides"):
            shutil.copytree(ROOT / name, directory / name)
        shutil.copy2(ROOT / "pyproject.toml", directory)

    def green(self, tests: Sequence[str]) -> set[str]:
        """Those of the tests that pass without a bug, with all their parameters."""
        if not tests:
            return set()
        _, output = self._run(tests, HANGS_SECONDS * len(tests))
        told = [line.partition(" ") for line in output.splitlines()]
        passed = {test for word, _, test in told if word == "PASSED"}
        others = [test for word, _, test in told if word in ("FAILED", "ERROR", "SKIPPED")]
        return {
            test
            for test in tests
            if any(each == test or each.startswith(f"{test}[") for each in passed)
            and not any(each.startswith(test) for each in others)
        }

    def judge(self, bug: Bug) -> Finding:
        """What becomes of the bug's test with the bug, which does not stay."""
        file = self._directory / SOURCES / bug.file
        source, before = file.read_text("utf-8"), file.stat()
        began = time.monotonic()
        file.write_text(bug.planted_in(source), "utf-8")
        try:
            # Its waits are the short ones, whatever the machine's are: they are what makes the test red.
            code, output = self._run(
                [bug.test_id], HANGS_SECONDS, PYTHONDONTWRITEBYTECODE="1", ANTIPHON_TEST_SECONDS="10"
            )
        finally:
            file.write_text(source, "utf-8")
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        match code:
            case None:
                verdict = Verdict.HANGS
            case n if n == TESTS_FAILED:
                verdict = Verdict.FOUND
            case n if n == NO_TESTS_FAILED:
                verdict = Verdict.SURVIVED
            case _:
                verdict = Verdict.NOT_RUN
        return Finding(bug, verdict, time.monotonic() - began, output)

    def _run(self, tests: Sequence[str], most_seconds: float, **variables: str) -> tuple[int | None, str]:
        """The exit code of pytest, None if it was ended; and what it wrote."""
        program = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "--rootdir", str(self._directory)]
        options = ["-rpfEs", "-p", "anyio", "--tb=short"]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        variables |= {
            "PYTHONPATH": f"{self._directory}/src{os.pathsep}{self._directory}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # they take as long to load as most tests
        }
        with subprocess.Popen(
            [*program, *options, *tests],
            cwd=self._directory,
            env={**inherited, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=most_seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return None, process.communicate()[0]
            return process.returncode, output


def judge_all(
    bugs: Iterable[Bug], workers: int, on_finding: Callable[[Finding], None] = lambda finding: None
) -> list[Finding]:
    """One finding each, in their order. First it is seen that their tests are green without them."""
    bugs = list(bugs)
    tests = sorted({bug.test_id for bug in bugs})
    with TemporaryDirectory(prefix="antiphon-planted-") as directory, ThreadPoolExecutor(workers) as threads:
        copies: SimpleQueue[SourceCopy] = SimpleQueue()
        for copy in threads.map(SourceCopy, [Path(directory, str(number)) for number in range(workers)]):
            copies.put(copy)

        def green(some: Sequence[str]) -> set[str]:
            copy = copies.get()
            try:
                return copy.green(some)
            finally:
                copies.put(copy)

        def judge(bug: Bug) -> Finding:
            if bug.test_id not in passed:
                finding = Finding(bug, Verdict.NOT_GREEN, 0.0, "")
            else:
                copy = copies.get()
                try:
                    finding = copy.judge(bug)
                finally:
                    copies.put(copy)
            on_finding(finding)
            return finding

        passed = set[str]().union(*threads.map(green, [tests[number::workers] for number in range(workers)]))
        return list(threads.map(judge, bugs))
