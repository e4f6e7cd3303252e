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
