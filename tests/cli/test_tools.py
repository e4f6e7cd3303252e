"""`antiphon tools`: the tools of a real server are listed, read, confirmed and taken back."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.claims import requirement
from tests.cli.program import antiphon, antiphon_json
from tests.cli.test_doctor import checks

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home_of_things(home: Path, tmp_path: Path) -> Path:
    home.mkdir(mode=0o700)
    (home / "antiphon.toml").write_text(
        f"""
        [agents.defaults.mcp_servers.things]
        command = {json.dumps(sys.executable)}
        args = ["-m", "tests.mcp.program", {json.dumps(str(tmp_path))}]
        cwd = {json.dumps(str(ROOT))}
        tools = ["add", "fail", "die"]
        effects = {{ die = ["deletes"] }}
        """
    )
    return home


def tools_of(answer: Any) -> dict[str, Any]:
    (source,) = answer["sources"]
    assert source["source"] == "mcp:things"
    return {tool["name"]: tool for tool in source["tools"]}


@requirement("cli:1", "foreign_tools:1")
def test_an_owner_reads_what_tools_say_and_confirms_what_they_do(home_of_things: Path) -> None:
    home = home_of_things
    listed = antiphon("tools", "list", home=home)
    assert listed.returncode == 0 and "mcp:things: 3 tools; 3 not reviewed" in listed.stdout
    assert "deletes (settings)" in listed.stdout and "antiphon tools review" in listed.stdout
    found = checks(home)[1]["tools of mcp:things"]
    assert (found["status"], found["detail"]) == ("warning", "not reviewed: add, die, fail")

    unsaid = antiphon("tools", "review", "things", home=home)
    assert unsaid.returncode == 2 and "add --yes" in unsaid.stderr
    assert "fail: writes, leaves." in unsaid.stderr and "Tells that it failed, and a secret with it." in unsaid.stderr
    assert "die: deletes." in unsaid.stderr and '"title": "A"' in unsaid.stderr, "words of arguments are words too"
    assert antiphon("tools", "review", "nothing", "--yes", home=home).returncode == 3
    assert antiphon("tools", "review", "--effects", "add=sings", home=home).returncode == 2
    wrong = antiphon("tools", "review", "--yes", "--effects", "die=reads", home=home)
    assert wrong.returncode != 0 and "declared in the settings: mcp_servers.things.effects" in wrong.stderr

    done = antiphon_json("tools", "review", "--yes", "--effects", "add=reads", home=home)
    assert {name: tool["effects"] for name, tool in tools_of(done).items()} == {
        "add": ["reads"],
        "die": ["deletes"],
        "fail": ["writes", "leaves"],
    }
    assert {tool["state"] for tool in tools_of(antiphon_json("tools", "list", home=home)).values()} == {"confirmed"}
    assert "tools of mcp:things" not in checks(home)[1]
    assert "Every tool is reviewed." in antiphon("tools", "review", home=home).stdout

    antiphon_json("tools", "review", "--yes", "--effects", "add=reads,leaves", home=home)
    assert tools_of(antiphon_json("tools", "list", home=home))["add"]["effects"] == ["reads", "leaves"]
    assert antiphon_json("tools", "withdraw", "things", home=home) == {"source": "mcp:things", "withdrawn": 3}
    assert {tool["state"] for tool in tools_of(antiphon_json("tools", "list", home=home)).values()} == {"unreviewed"}
