"""What tests begin ends with them."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ending

TESTS = Path(__file__).parent
KEPT = {
    "channels/telegram/test_kill.py",  # ends it in the next line
    "channels/telegram/dying_gateway.py",  # servers that fork the programs of many tests; they end with their input
    "cli/preloaded.py",
    "acp/rude_harness.py",  # leaves children on purpose; the test ends their group
    *("fork_server.py", "examples/test_tenants.py"),  # servers that fork; they end with their input
    "planted/planting.py",  # has a time of its own
}
"""Where programs are begun that may outlive a block."""
ENDLESS = [sys.executable, "-c", "import time; time.sleep(3600)"]


def test_a_program_whose_check_fails_is_not_waited_for() -> None:
    with pytest.raises(LookupError), ending(subprocess.Popen(ENDLESS)) as program:
        raise LookupError
    assert program.returncode == -9


def test_nothing_else_begins_or_runs_programs_without_an_end() -> None:
    found: list[str] = []
    ended: set[ast.expr] = set()
    for path in sorted(TESTS.rglob("*.py")):
        file = str(path.relative_to(TESTS))
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or file in KEPT:
                continue
            name = ast.unparse(node.func)
            if name in ("ending", "ending_soon"):
                ended.update(node.args)
            is_timed = any(keyword.arg in ("timeout", None) for keyword in node.keywords)
            if (name == "subprocess.Popen" and node not in ended) or (name == "subprocess.run" and not is_timed):
                found.append(f"{file}:{node.lineno}")
    assert found == []
