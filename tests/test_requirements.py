"""The contract's rules and the tests that claim them, compared both ways."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.claims import requirement
from tests.requirements import REQUIREMENTS

TESTS = Path(__file__).parent


def claims_in(source: str) -> Iterator[str]:
    """The ids in `@requirement(…)` on tests and test classes, and in `pytestmark`."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test_"):
                marks = node.decorator_list
            case ast.ClassDef() if node.name.startswith("Test"):
                marks = node.decorator_list
            case ast.Assign(targets=[ast.Name(id="pytestmark")]):
                marks = list(ast.walk(node.value))
            case _:
                continue
        for mark in marks:
            match mark:
                case ast.Call(func=ast.Name(id="requirement")):
                    yield from (ast.literal_eval(argument) for argument in mark.args)
                case _:
                    pass


@cache
def claimed() -> set[str]:
    """The ids that the tests claim."""
    return {id for path in TESTS.rglob("test_*.py") for id in claims_in(path.read_text("utf-8"))}


def test_every_built_rule_is_claimed_by_a_test() -> None:
    built = {id for id, rule in REQUIREMENTS.items() if rule.open is None}
    assert sorted(built - claimed()) == []


def test_no_open_rule_is_claimed() -> None:
    still_open = {id for id, rule in REQUIREMENTS.items() if rule.open is not None}
    assert sorted(still_open & claimed()) == []


def test_every_claim_names_a_rule() -> None:
    assert sorted(claimed() - REQUIREMENTS.keys()) == []


def test_rules_of_a_group_are_numbered_without_gaps() -> None:
    numbers: dict[str, list[int]] = {}
    for id in REQUIREMENTS:
        group, _, number = id.partition(":")
        numbers.setdefault(group, []).append(int(number))
    assert {group: found for group, found in numbers.items() if found != [*range(1, len(found) + 1)]} == {}


def test_an_open_rule_has_no_remaining_part() -> None:
    assert [id for id, rule in REQUIREMENTS.items() if rule.open is not None and rule.remaining is not None] == []


def test_claims_are_read_from_functions_classes_and_modules() -> None:
    source = """
pytestmark = [requirement("a:1"), pytest.mark.slow]
@requirement("a:2", "a:3")
async def test_it(): ...
@requirement("a:4")
class TestIt: ...
@requirement("a:5")
def helper(): ...
"""
    assert sorted(claims_in(source)) == ["a:1", "a:2", "a:3", "a:4"]


def test_claiming_an_unknown_rule_fails_at_import() -> None:
    with pytest.raises(LookupError, match="keys:99"):
        requirement(*["keys:99"])
