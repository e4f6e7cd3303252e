"""A harness of a gateway that is the program itself, with its event loop, its umask and its signals."""

import json
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.acp.stage import TALKING, effects
from tests.claims import requirement
from tests.cli.program import antiphon, antiphon_json, serving
from tests.waiting import PROCESS_SECONDS, until

SETTINGS = """
[acp.agents.coder]
command = [{python}, "-S", {program}, {mark}]
mode = "ask"
sandbox.mode = "{walls}"
[acp.agents.coder.env]
HOME = {place}
"""


@requirement("foreign_agents:2")
@pytest.mark.parametrize("walls", ["off", "all"])
def test_a_harness_answers_asks_and_ends_with_the_gateway(home: Path, tmp_path: Path, walls: str) -> None:
    place = tmp_path / "harness-home"
    place.mkdir()
    mark = f"of-{uuid4().hex}"
    words = {"python": sys.executable, "program": TALKING, "place": place, "mark": mark}
    quoted = {name: json.dumps(str(word)) for name, word in words.items()}
    home.mkdir(mode=0o700)
    text = SETTINGS.format(walls=walls, **quoted)
    (home / "antiphon.toml").write_text(
        text if walls == "off" else text.partition("[acp.agents.coder.env]")[0], "utf-8"
    )
    with serving(home) as gateway:
        said = antiphon("chat", "agent:coder:main", "--new", home=home, stdin="!say hello\n")
        assert "hello" in said.stdout.splitlines(), said.stdout + said.stderr
        asking = antiphon_json("sessions", "send", "agent:coder:main", "!ask touch it\n!say done", home=home)
        until(lambda: len(_open(home)) == 1, seconds=PROCESS_SECONDS)
        listed = antiphon("approvals", "list", home=home).stdout
        assert "coder asks before it does this itself: touch it." in " ".join(listed.split()), listed
        assert antiphon("approvals", "approve", _open(home)[0]["approvalId"], home=home).returncode == 0
        run = antiphon_json("runs", "show", asking["runId"], "--wait", "60", home=home)
        assert (run["status"], run["reply"]) == ("ok", "touch it: yes. done"), run
        antiphon_json("sessions", "send", "agent:coder:main", "!hang", home=home)
        until(lambda: _harnesses(mark), seconds=PROCESS_SECONDS)
        gateway.stop()
        assert not _harnesses(mark)
    assert effects(home) == ["touch it"]
    [made] = home.glob("workspaces/*/*/effects")
    assert stat.S_IMODE(made.stat().st_mode) == 0o666 & ~_umask(), "a harness makes files with the umask of its user"


def _umask() -> int:
    found = os.umask(0o022)
    os.umask(found)
    return found


def _harnesses(mark: str) -> list[int]:
    """The processes that have the mark as an argument."""
    found = list[int]()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (process / "cmdline").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


def _open(home: Path) -> list[dict[str, Any]]:
    return antiphon_json("approvals", "list", home=home)["approvals"]
