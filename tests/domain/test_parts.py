"""Texts cut to the measure of a channel."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.domain.channel_form import PLAIN_FORM, ChannelForm, LengthUnit
from antiphon.domain.parts import SHORTEST, cut, measure, parts_of
from antiphon.domain.silence import MARKERS, held_tail, spoken, spoken_so_far
from tests.claims import requirement

SMALL = ChannelForm(longest=SHORTEST)
TELEGRAM = ChannelForm(longest=4096, unit=LengthUnit.UTF16)
WORDS = st.sampled_from(
    [
        "word",
        "a",
        "\n",
        "\n\n",
        " ",
        ". ",
        "```python\n",
        "```\n",
        "\n```\n",
        "    code",
        "😀",
        "e\u0301",
        "x" * 90,
        "~~~\n",
    ]
)
TEXTS = st.one_of(st.lists(WORDS, max_size=80).map("".join), st.text(max_size=300))
FORMS = st.builds(
    ChannelForm, longest=st.integers(SHORTEST, 200), unit=st.sampled_from([LengthUnit.CHARACTERS, LengthUnit.UTF16])
)


@requirement("channels:1")
@given(TEXTS, FORMS)
def test_parts_hold_all_of_a_text_but_blanks_and_each_fits(text: str, form: ChannelForm) -> None:
    parts = parts_of(text, form)
    assert form.longest is not None
    assert all(part.strip() and measure(part, form.unit) <= form.longest for part in parts)
    assert parts == parts_of(text, form)
    pieces, end = cut(text, form), 0
    for piece in pieces:
        assert end <= piece.start < piece.end
        skipped = text[end : piece.start]
        # Between two parts are blanks, or the line that closes a fence, which the part before ends with.
        assert re.fullmatch(r"[\s`~]*", skipped), skipped
        end = piece.end
    assert not text[end:].strip("`~ \n\t\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029").strip()


@requirement("channels:1")
def test_a_text_without_a_limit_is_one_part_as_it_is() -> None:
    text = "  one\n\ntwo " * 10_000
    assert parts_of(text, PLAIN_FORM) == [text]
    assert parts_of(" \n", PLAIN_FORM) == []


@requirement("channels:1")
@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a" * 40 + ".\n\n" + "b" * 40, ["a" * 40 + ".", "b" * 40]),
        ("One sentence is here. " + "c" * 40 + " and more", ["One sentence is here.", "c" * 40 + " and more"]),
        ("word " * 20, [("word " * 11).strip(), ("word " * 9).strip()]),
        ("d" * 100, ["d" * 55, "d" * 45]),
    ],
)
def test_a_text_is_cut_between_paragraphs_else_sentences_else_words(text: str, parts: list[str]) -> None:
    assert parts_of(text, SMALL) == parts


@requirement("channels:1")
def test_a_block_of_code_is_closed_and_opened_again_with_its_language() -> None:
    lines = [f"    line {number}" for number in range(10)]
    parts = parts_of("\n".join(["Look:", "```py", *lines, "```", "Done."]), SMALL)
    assert len(parts) > 2
    found: list[str] = []
    for number, part in enumerate(parts):
        assert part.count("```") == 2, part
        assert part.startswith("Look:\n```py\n" if number == 0 else "```py\n")
        found += [line for line in part.split("\n") if line.startswith("    line")]
    assert found == lines
    assert parts[-1].endswith("```\nDone.")


@requirement("channels:1")
def test_no_part_ends_within_a_character() -> None:
    family = "👩\u200d👩\u200d👧"
    for part in parts_of(family * 200, TELEGRAM):
        assert part.replace(family, "") == ""
    for part in parts_of("e\u0301" * 200, SMALL):
        assert part.startswith("e") and part.endswith("\u0301")
    assert [measure(part, LengthUnit.UTF16) <= 4096 for part in parts_of("😀" * 3000, TELEGRAM)] == [True, True]


@requirement("groups:3")
@given(st.lists(st.sampled_from(["<NO_", "REPLY>", "<", "NO", "<EMPTY_RESPONSE>", "words", " ", ">"]), max_size=8))
def test_a_tail_that_could_begin_a_marker_is_held_back_and_nothing_else(pieces: list[str]) -> None:
    text = "".join(pieces)
    tail = held_tail(text)
    assert text.endswith(tail)
    assert not tail or any(marker.startswith(tail) for marker in MARKERS)
    for size in range(1, 20):
        if len(text) >= size and any(marker.startswith(text[-size:]) and len(marker) > size for marker in MARKERS):
            assert len(tail) >= size
    assert not any(marker in spoken_so_far(text) for marker in MARKERS if marker not in spoken(text))


@requirement("groups:3")
@pytest.mark.parametrize("marker", MARKERS)
def test_no_beginning_of_a_silent_reply_is_shown(marker: str) -> None:
    assert {spoken_so_far(marker[:length]) for length in range(len(marker) + 1)} == {""}
    assert spoken_so_far("3 < 4 <N") == "3 < 4 "
