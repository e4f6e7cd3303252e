import json
from pathlib import Path

from tests.claims import requirement
from tests.cli.program import antiphon, antiphon_json

pytestmark = requirement("config:1")


def test_the_schema_names_every_section(home: Path) -> None:
    done = antiphon("config", "schema", home=home)
    schema = json.loads(done.stdout)
    assert done.returncode == 0
    assert {"gateway", "agents", "providers", "limits", "session", "log"} <= schema["properties"].keys()


def test_a_configuration_is_checked_without_starting_anything(home: Path) -> None:
    assert antiphon_json("config", "check", home=home) == {"ok": True, "file": None}
    home.mkdir()
    (home / "antiphon.toml").write_text("[runs]\nmaxConcurrent = 0\n")
    done = antiphon("config", "check", home=home)
    assert done.returncode == 2
    assert "line 2" in done.stderr and "runs.maxConcurrent" in done.stderr


def test_names_of_tools_and_agents_that_there_are_not_are_warned_of(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "antiphon.toml").write_text(
        'tools.subagents.tools = ["sessions_list", "nope"]\n'
        '[agents.defaults.subagents]\nallow_agents = ["*", "main", "nobody"]\n'
    )
    told = ["tools.subagents.tools names no session tool: 'nope'", "allow_agents names no agent: 'nobody'"]
    assert antiphon_json("config", "check", home=home)["warnings"] == told
    shown = antiphon("config", "check", home=home)
    assert shown.returncode == 0 and all(text in shown.stdout for text in told)
    checks = json.loads(antiphon("doctor", "--json", home=home).stdout)["checks"]
    found = [check for check in checks if check["name"] == "setting"]
    assert [(check["status"], check["detail"]) for check in found] == [("warning", text) for text in told]
    assert all(check["remedy"] for check in found)
