"""What people are told in place of a reply, by a table over all codes of runs. Contract: groups 4."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from itertools import product
from pathlib import Path

import pytest

import antiphon
from antiphon.agents.model import ModelErrorKind
from antiphon.domain.message import Cut
from antiphon.domain.person import PersonRole
from antiphon.domain.run import PlaceGot
from antiphon.domain.session import DeliveryContext
from antiphon.domain.telling import (
    CAUSES,
    OF_CHECKPOINTS,
    OF_CUTS,
    QUIET,
    Cause,
    ShownPart,
    Told,
    cause_of,
    cut_short,
    noted,
    sentence,
    succeeded,
)
from tests.claims import requirement

SOURCE = Path(antiphon.__file__).parent
ERRORS = Path(__file__).parents[2] / "docs" / "ERRORS.md"
ENDING = {"Outcome": None, "_failed": 0, "Capped": 0, "Room": None, "Cap": None}
"""What says how a run ends, and the place of the code among its arguments if it has one."""
ROOMS = (
    "acp",
    "agents",
    "engine/runs",
    "engine/work",
    "engine/children",
    "engine/reports",
    "engine/checkpoints",
    "policy",
)
FOR_PEOPLE = re.compile(r"[A-Z(][^.;!?]*(?:; [^.;!?]*)?\.\)?")
INSIDE = ("antiphon", "provider", "model", "key", "quota", "limits", "config", "settings", "log", "`", "_", "http", ":")
"""What nobody below owner has to read."""


def documented() -> set[str]:
    """The codes in the first table of runs; the second one is about what a prompt leaves out."""
    table = ERRORS.read_text("utf-8").partition("\n## Runs\n")[2].strip().partition("\n\n")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", table, re.M)
    return {code for row in rows for code in re.findall(r"`([a-z_]+)`", row)}


def written() -> Iterator[str]:
    """The codes that the sources give to ends of runs."""
    for path in (path for room in ROOMS for path in (SOURCE / room).rglob("*.py")):
        module = "antiphon." + ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ENDING:
                index = ENDING[node.func.id]
                named = [word.value for word in node.keywords if word.arg == "code"]
                for value in [*named, *(node.args[index : index + 1] if index is not None else ())]:
                    match value:
                        case ast.Constant(value=str() as code):
                            yield code
                        case ast.Name(id=name) if name.isupper():
                            yield getattr(import_module(module), name)
                        case _:
                            pass


@requirement("groups:4")
def test_each_code_with_which_a_run_ends_has_one_cause_or_needs_no_words() -> None:
    codes = documented() | set(written()) | {kind.value for kind in ModelErrorKind}
    assert len(codes) > 30 and {"crashed", "limit_tokens", "person_cap", "internal_error"} <= codes
    assert codes <= CAUSES.keys() | QUIET | OF_CHECKPOINTS, "say in domain/telling why a run with this code is silent"
    assert not (CAUSES.keys() & QUIET or CAUSES.keys() & OF_CHECKPOINTS)
    assert set(CAUSES.values()) == set(Cause) and set(OF_CUTS) == set(Cut)


def test_a_code_that_nobody_knows_is_a_fault_of_ours() -> None:
    assert cause_of("of_a_later_version") is cause_of(None) is Cause.FAULT


@requirement("groups:4")
@pytest.mark.parametrize(("cause", "shown"), [*product(Cause, ShownPart)])
def test_each_sentence_is_one_and_speaks_of_settings_to_owners_alone(cause: Cause, shown: ShownPart) -> None:
    for role in (*PersonRole, None):
        said = sentence(cause, role, shown)
        assert FOR_PEOPLE.fullmatch(said), said
        if role is not PersonRole.OWNER:
            assert not [word for word in INSIDE if word in said.lower()], said
            assert said == sentence(cause, None, shown)
    if shown is ShownPart.NOTHING:
        assert sentence(cause, PersonRole.OWNER) != sentence(cause, None)
        assert len({sentence(each, None) for each in Cause}) == len(Cause)


def test_caps_of_people_are_told_apart() -> None:
    said = {sentence(Cause.LIMIT, PersonRole.GUEST, code=code) for code in ("person_cap", "guests_cap", "limit_tokens")}
    assert len(said) == 3 and all(FOR_PEOPLE.fullmatch(each) for each in said)


@requirement("runs:2")
def test_a_part_keeps_its_text_and_says_that_it_is_cut() -> None:
    for cause in Cause:
        said = cut_short("The train", cause)
        assert said.startswith("The train\n\n(") and said.endswith(".)")
    in_code = cut_short("```\nx = 1", Cause.CUT)
    assert in_code.count("```") == 2 and in_code.index("(The answer") > in_code.rindex("```")


def test_what_was_told_counts_for_its_place_and_cause_until_a_turn_succeeds_there() -> None:
    here, there = (DeliveryContext(channel="telegram", to=to) for to in "12")
    told = noted(noted(noted((), here, Cause.AWAY), here, Cause.EMPTY), there, Cause.AWAY)
    assert noted(told, here, Cause.AWAY) == told
    assert succeeded(told, here) == (Told(there, Cause.AWAY),)
    assert {got.value for got in PlaceGot} == {
        *("sent", "told", "told_before", "marker", "denied", "flow", "withdrawn"),
    }
