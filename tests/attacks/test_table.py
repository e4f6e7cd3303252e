"""The table of attacks as a whole: large enough, every attacker and every door in it, no row twice."""

import importlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.attacks.attempt import Attacker, Attempt, Door
from tests.claims import requirement

FOLDER = Path(__file__).parent
AT_LEAST = 300


def _attempts() -> Iterator[tuple[str, Attempt]]:
    """Every row that a test of this folder is parametrised with, beside the test's name."""
    for path in sorted(FOLDER.glob("test_*.py")):
        module = importlib.import_module(f"tests.attacks.{path.stem}")
        for name, test in vars(module).items():
            marks: list[pytest.Mark] = getattr(test, "pytestmark", []) if name.startswith("test_") else []
            for mark in marks:
                if mark.name == "parametrize":
                    yield from ((f"{path.stem}.{name}", row) for row in _rows_in(mark))


def _rows_in(mark: pytest.Mark) -> Iterator[Attempt]:
    for value in mark.args[1]:
        row = value.values[0] if isinstance(value, ParameterSet) else value
        if isinstance(row, Attempt):
            yield row


ATTEMPTS = list(_attempts())


@requirement("gateway:5")
def test_the_table_is_large_enough() -> None:
    assert len(ATTEMPTS) >= AT_LEAST


def test_every_attacker_and_every_door_has_rows() -> None:
    assert {row.attacker for _, row in ATTEMPTS} == set(Attacker)
    assert {row.door for _, row in ATTEMPTS} == set(Door)


def test_no_row_stands_twice() -> None:
    counted = Counter((test, row.attacker, row.door, row.what) for test, row in ATTEMPTS)
    assert [row for row, times in counted.items() if times > 1] == []
