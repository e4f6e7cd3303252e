"""`acpx`, a client of others for terminals, with the real program as its agent."""

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.claims import requirement
from tests.cli.program import COMMAND, antiphon_json, environment, serving
from tests.directives import to_call
from tests.waiting import PROCESS_SECONDS

pytestmark = requirement("foreign_agents:2")

CLIENTS = Path(__file__).parents[3] / ".venv" / "acp"
ACPX = CLIENTS / "node_modules" / "acpx" / "dist" / "cli.js"
NODE = CLIENTS / "node" / "bin" / "node"


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    if not (ACPX.exists() and NODE.exists()):
        pytest.skip("needs acpx, which `make setup-clients` installs")


class Acpx:
    """Runs it in a folder, with settings of its own."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        self._settings = folder / "user"
        self._settings.mkdir()
        self._home = home

    def __call__(self, *arguments: str) -> str:
        """What it printed."""
        variables = environment({"ANTIPHON_HOME": str(self._home), "HOME": str(self._settings)})
        options = ["--agent", shlex.join([*COMMAND, "acp"]), "--ttl", "1", "--cwd", str(self.work)]
        done = self._run([*options, *arguments], {**variables, "PATH": f"{NODE.parent}:{variables['PATH']}"})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _run(self, arguments: Sequence[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(NODE), str(ACPX), *arguments],
            env=variables,
            capture_output=True,
            text=True,
            timeout=PROCESS_SECONDS,
            check=False,
        )


def test_it_opens_resumes_streams_calls_and_asks(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "antiphon.toml").write_text('[tools.run_command]\nmode = "host"\n', "utf-8")
    with serving(home):
        acpx = Acpx(tmp_path, home)
        assert "echo: once" in acpx("exec", "once")
        session = acpx("--format", "quiet", "sessions", "new").strip().splitlines()[-1]
        row = antiphon_json("sessions", "show", session, home=home)
        assert row["metadata"]["acp_cwd"] == str(acpx.work) and row["metadata"]["acp_client"].startswith("acpx")
        said = acpx("--approve-all", to_call("run_command", command="echo bought"))
        assert '[tool] run_command {"command": "echo bought"} (completed)' in said and "[done] end_turn" in said
        (asked,) = antiphon_json("approvals", "list", "--all", "--session", session, home=home)["approvals"]
        assert asked["calls"][0]["decision"] == "once"
