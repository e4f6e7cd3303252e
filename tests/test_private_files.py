"""The umask of processes that serve, and of the commands that they run. Contract: first_start 1."""

import subprocess
import sys
from pathlib import Path

from tests.claims import requirement
from tests.waiting import PROCESS_SECONDS

PROGRAM = """
import os, sys
from pathlib import Path
os.umask(0o002)
from antiphon.private_files import restrict_umask
from antiphon.tools.sandbox.host import HostProcess
restrict_umask()
restrict_umask()
Path("ours").write_text("")
process = HostProcess("umask > theirs; touch made", Path.cwd())
process.exit_code()
"""


@requirement("first_start:1")
def test_this_process_makes_private_files_and_commands_keep_the_starting_umask(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, check=True, timeout=PROCESS_SECONDS)
    assert (tmp_path / "ours").stat().st_mode & 0o777 == 0o600
    assert int((tmp_path / "theirs").read_text(), 8) == 0o002
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o664
