"""Every case about classified data is shown by tests that exist, or says why not."""

from tests.flow.cases import CASES
from tests.test_cases import functions_of

NUMBERS = {
    "A": (1, 2, 3, 5, 6, 7),
    "B": (9, 10, 11, 13, 14, 15, 17, 18),
    "C": (19, 21),
    "D": (22, 23, 25, 26, 27, 29, 30, 31, 33),
    "E": (34, 35, 37, 38, 39, 41, 42, 43),
    "F": (45, 46, 47, 49, 50, 51, 53, 54, 55, 57, 58, 59, 61, 62, 63, 65),
    "G": (66, 67, 69),
    "H": (70, 71, 73, 74, 75, 77, 78, 79),
}


def test_every_case_is_listed() -> None:
    assert list(CASES) == [f"{group}{number}" for group, numbers in NUMBERS.items() for number in numbers]


def test_every_test_that_a_case_names_exists() -> None:
    named = {test for case in CASES.values() for test in case.tests}
    missing = [test for test in sorted(named) if test.partition("::")[2] not in functions_of(test.partition("::")[0])]
    assert missing == []


def test_a_case_without_a_test_says_why() -> None:
    assert [id for id, case in CASES.items() if not case.tests and case.open is None] == []
