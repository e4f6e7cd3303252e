"""Texts on which people decide: nothing in them is invisible. Over the whole of Unicode."""

import json
import sys
import unicodedata

import pytest

from antiphon.domain.invisible import BLANK, DEFAULT_IGNORABLE, is_invisible
from antiphon.domain.text import bracketed_name, exact
from tests.claims import requirement

IGNORABLE_CODE_POINTS = 4174
"""As many as DerivedCoreProperties.txt counts at the end of the property's section."""
UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"}
"""Categories of characters that show nothing, or that no font has to know."""
EVERY = [chr(code) for code in range(sys.maxunicode + 1)]


def is_unseen(character: str) -> bool:
    """By the properties, not by the code that is tested."""
    if character in (" ", "\n"):
        return False
    code = ord(character)
    is_ignorable = any(first <= code <= last for first, last in DEFAULT_IGNORABLE)
    return is_ignorable or unicodedata.category(character) in UNSEEN or character in BLANK


@requirement("approvals:1")
def test_every_invisible_character_is_written_as_its_escape_and_every_other_stays() -> None:
    wrong = [hex(ord(each)) for each in EVERY if (exact(each) == each) is is_unseen(each)]
    assert wrong == []
    assert all(exact(each).isprintable() for each in EVERY if each != "\n")


@requirement("approvals:1")
def test_what_is_shown_is_the_json_that_was_written() -> None:
    """So the text that a person reads and the text that runs are the same value."""
    written = "".join(each for each in EVERY if each not in '"\\' and each >= " ")
    read = json.loads(f'"{exact(written)}"')
    assert read.encode("utf-16-le", "surrogatepass") == written.encode("utf-16-le", "surrogatepass")
    assert not any(is_unseen(each) for each in exact(written))


def test_the_table_is_that_of_the_property() -> None:
    assert sum(last - first + 1 for first, last in DEFAULT_IGNORABLE) == IGNORABLE_CODE_POINTS
    assert [*DEFAULT_IGNORABLE] == sorted(DEFAULT_IGNORABLE)
    # Every format character and every variation selector is in it, or is unseen by its category.
    selectors = [each for each in EVERY if "VARIATION SELECTOR" in unicodedata.name(each, "")]
    assert len(selectors) == 260 and all(map(is_invisible, selectors))


@pytest.mark.parametrize("hidden", ["\u17b4", "\u180b", "\ufe0f", "\U000e0100", "\U000e0041", "\u3164", "\u202e"])
def test_no_name_hides_a_character(hidden: str) -> None:
    assert bracketed_name(f"An{hidden}n") == "Ann"
    assert exact(f"An{hidden}n") != "Ann" and hidden not in exact(f"An{hidden}n")
