"""Planted leaks: the worlds find each of them, by name."""

from collections import Counter

import pytest

from tests.planted.bug import ROOT, SOURCES
from tests.planted.planting import Verdict, judge_all
from tests.worlds.leaks import LEAKS, NAMES


def test_every_leak_can_be_planted() -> None:
    for leak in LEAKS:
        source = (ROOT / SOURCES / leak.file).read_text("utf-8")
        assert leak.planted_in(source) != source, leak.name
    assert Counter(leak.name for leak in LEAKS) == Counter(NAMES)


@pytest.mark.parametrize("name", ["preview unfiltered", "search snippet"])
def test_a_leak_is_found(name: str) -> None:
    """Two of them; `make prove` plants them all."""
    (finding,) = judge_all([leak for leak in LEAKS if leak.name == name], workers=1)
    assert finding.verdict is Verdict.FOUND, finding.output
