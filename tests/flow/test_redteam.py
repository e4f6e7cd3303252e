"""The red team brings no canary out, and legal flows work."""

import random
from pathlib import Path

import pytest

from antiphon.domain.classification import PUBLIC
from antiphon.testing.attempts import ROUTES
from antiphon.testing.redteam import attack
from antiphon.testing.scene import FIRST_COMPARTMENT, Canary, pairs_of
from tests.claims import requirement

pytestmark = pytest.mark.anyio

PARTS = 4
"""The routes in so many tests, which can run beside each other."""
A_FEW = (1, 4, 12, 16, 17, 19, 20, 21)
"""Pairs for each day: up, down, a compartment on either side, two persons, one, and the same one."""
LEAST_ROUTES = 32


@requirement("flow:1", "flow:2", "flow:3", "flow:4", "flow:5", "flow:6", "flow:7", "flow:8")
@pytest.mark.parametrize("part", range(PARTS))
async def test_no_canary_gets_out_and_what_may_flow_arrives(tmp_path: Path, part: int, *, is_proof: bool) -> None:
    report = await attack(tmp_path / "home", routes=ROUTES[part::PARTS], pairs=None if is_proof else A_FEW)
    print(report)
    assert not report.leaks, str(report)
    assert not report.lost, str(report)
    assert report.tried.keys() == {route.name for route in ROUTES[part::PARTS]}


def test_there_are_enough_routes_and_pairs() -> None:
    assert len({route.name for route in ROUTES}) == len(ROUTES) >= LEAST_ROUTES
    pairs = pairs_of(FIRST_COMPARTMENT)
    assert len({pair.name for pair in pairs}) == len(pairs) > 20
    assert {pairs[index].is_legal for index in A_FEW} == {True, False}
    assert any(pair.source.flows_to(PUBLIC) for pair in pairs)


def test_a_canary_is_found_in_each_of_its_forms() -> None:
    canary = Canary.drawn()
    noise = "".join(random.Random(1).choices("abcdefghij ", k=100))
    assert canary.found_in(noise) is None
    for name, form in canary.forms.items():
        assert canary.found_in(f"{noise}{form}{noise}") is not None, name
    assert len(canary.word) * 4 == 128
