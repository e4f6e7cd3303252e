"""Patterns of agent ids."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.policy.patterns import matches, matches_any
from tests.claims import requirement


@requirement("visibility:3")
@pytest.mark.parametrize(
    ("name", "pattern", "is_met"),
    [
        ("OPS-WORKER", "Ops-*", True),
        ("ops", "Ops", False),
        ("Ops", "Ops", True),
        ("a", " ", False),
        ("", "*", True),
        ("anything", "*", True),
        ("team-ops-prod", "team-*-prod", True),
        ("team-prod", "team-*-prod", False),
        ("abcxyz", "abc*xyz", True),
        ("ab", "abc*xyz", False),
        ("OPS.[PROD]-worker", "ops.[prod]*", True),
        ("opsXprod-worker", "ops.[prod]*", False),
        ("aba", "ab*ba", False),
        ("a", "a*a", False),
    ],
)
def test_a_star_stands_for_any_part_and_nothing_else_is_special(name: str, pattern: str, *, is_met: bool) -> None:
    assert matches(name, pattern) is is_met


@requirement("visibility:3")
def test_matching_takes_linear_time() -> None:
    name = "a" * 200 + "b" * 200 + "c" * 200 + "d" * 200
    started = time.process_time()
    assert not any(matches_any(name, ["*a*b*c*d*e*"]) for _ in range(100))
    assert time.process_time() - started < 5  # by backtracking it would be hours


@given(st.lists(st.text("ab", max_size=3), min_size=1, max_size=5), st.lists(st.text("ab", max_size=3), max_size=4))
def test_a_name_made_by_filling_the_stars_matches(parts: list[str], fillings: list[str]) -> None:
    filled = parts[0]
    for index, part in enumerate(parts[1:]):
        filled += (fillings[index] if index < len(fillings) else "") + part
    pattern = "*".join(parts)
    if pattern:
        assert matches(filled, pattern)
