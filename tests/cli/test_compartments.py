"""`antiphon compartments`: created and listed."""

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
