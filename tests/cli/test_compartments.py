"""`antiphon compartments`: created and listed."""

import json
from pathlib import Path

from tests.claims import requirement
from tests.cli.program import antiphon, antiphon_json, serving


@requirement("cli:1", "flow:1")
def test_compartments_are_created_and_listed_in_their_order(home: Path) -> None:
    with serving(home):
        for name in ("finance", "health"):
            assert f"Compartment {name} can be used" in antiphon("compartments", "add", name, home=home).stdout
        table = antiphon("compartments", "list", home=home).stdout
        assert [line.strip() for line in table.splitlines()] == ["Compartment", "finance", "health"]
        refused = antiphon("compartments", "add", "health", home=home)
        assert refused.returncode != 0 and "'health'" in refused.stderr
        listed = antiphon_json("compartments", "list", home=home)["compartments"]
        assert [row["name"] for row in listed] == ["finance", "health"]


@requirement("flow:1")
def test_what_settings_name_is_created_without_a_gateway_which_does_not_start_before(home: Path) -> None:
    classified = {"level": "INTERNAL", "compartments": ["health"]}
    settings = {"agents": {"list": [{"id": "main"}, {"id": "doctor", "classification": classified}]}}
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "antiphon.json5").write_text(json.dumps(settings), "utf-8")
    refused = antiphon("sessions", "list", home=home)
    assert refused.returncode != 0 and "antiphon compartments add" in refused.stderr
    assert antiphon_json("compartments", "list", home=home) == {"count": 0, "compartments": []}
    assert "Compartment health can be used" in antiphon("compartments", "add", "health", home=home).stdout
    assert [row["name"] for row in antiphon_json("compartments", "list", home=home)["compartments"]] == ["health"]
    assert antiphon("sessions", "list", home=home).returncode == 0
