"""Every case is shown by tests that exist, or says why not."""

import ast
from pathlib import Path

from tests.cases import CASES

TESTS = Path(__file__).parent
TASKS = (22, 23, 25, 26, 27, 29, 30, 31, 33, 34, 35, 37, 38, 39, 41, 42, 43, 45, 46)
NUMBERS = {
    "A": (1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15),
    "B": (1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14),
    "C": (1, 2, 3, 5, 6, 7, 9, 10, 11, 13),
    "D": (1, 2, 3, 5, 6, 7, 9, 10, 11, 13),
    "E": (1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23),
    "F": (1, 2, 3, 5, 6, 7, 9),
    "G": (1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19),
    "H": (1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17),
    "J": (1, 2, 3, 5, 6, 7, 9, 10, 11),
    "K": (1, 2, 3),
    "MF": (1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, *TASKS),
    "MH": (19, 21, 22, 23, 25, 26, 27, 61, 62, 63, 65, 66, 67, 69, 73),
}


def functions_of(path: str) -> set[str]:
    file = TESTS / path
    if not file.exists():
        return set()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(file.read_text("utf-8")).body if isinstance(node, functions)}


def test_every_case_is_listed() -> None:
    assert list(CASES) == [f"{group}{number}" for group, numbers in NUMBERS.items() for number in numbers]


def test_every_test_that_a_case_names_exists() -> None:
    named = {test for case in CASES.values() for test in case.tests}
    missing = [test for test in sorted(named) if test.partition("::")[2] not in functions_of(test.partition("::")[0])]
    assert missing == []


def test_a_case_without_a_test_says_why() -> None:
    assert [id for id, case in CASES.items() if not case.tests and case.open is None] == []
