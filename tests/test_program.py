"""The program is named by the path that works; readers elsewhere learn nothing about this machine by it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PROCESS_SECONDS

SCRIPT = """
from antiphon.program import public_path, with_path, with_public_path
print(public_path())
print(with_path("`antiphon open` prints a link"))
print(with_public_path("`antiphon open` prints a link"))
"""


@pytest.mark.parametrize("is_inside", [True, False])
def test_an_absolute_path_is_only_shown_on_this_machine(tmp_path: Path, *, is_inside: bool) -> None:
    program = tmp_path / "bin" / "antiphon"
    elsewhere = tmp_path / "elsewhere"
    for directory in (program.parent, elsewhere):
        directory.mkdir()
    program.write_text(SCRIPT)
    shown = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path if is_inside else elsewhere,
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=PROCESS_SECONDS,
    ).stdout.splitlines()
    path, public = ("bin/antiphon", "bin/antiphon") if is_inside else (str(program), "antiphon")
    assert shown == [public, f"`{path} open` prints a link", f"`{public} open` prints a link"]
