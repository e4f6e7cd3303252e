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


PROSE = st.lists(st.sampled_from(["word", "two words", "A sentence.", "x" * 30]), min_size=1, max_size=8).map(" ".join)
PARAGRAPH = st.lists(PROSE, min_size=1, max_size=4).map("\n".join)
CODE = st.tuples(
    st.sampled_from(["```", "```py", "~~~", "````"]),
    st.lists(st.sampled_from(["", "    deep", "call()", "y" * 25, "# a comment"]), max_size=12),
)
DOCUMENTS = st.lists(st.one_of(PARAGRAPH, CODE), min_size=1, max_size=8)


def kinds_of(text: str) -> list[tuple[bool, str]]:
    """Each line that is not blank, with whether it is code; the lines of fences are none."""
    found, marker = list[tuple[bool, str]](), ""
    for line in text.split("\n"):
        opening = re.match(r"(`{3,}|~{3,})", line)
        if marker and line.strip() == marker:
            marker = ""
        elif not marker and opening:
            marker = opening.group(1)
        elif line.strip():
            found.append((bool(marker), line.strip()))
    return found


@requirement("channels:1")
@given(DOCUMENTS, FORMS)
def test_prose_stays_prose_and_code_stays_code_wherever_a_document_is_cut(
    blocks: list[str | tuple[str, list[str]]], form: ChannelForm
) -> None:
    texts = [each if isinstance(each, str) else fenced(*each) for each in blocks]
    text = "\n\n".join(texts)
    whole = kinds_of(text)
    shown = [kind for part in parts_of(text, form) for kind in kinds_of(part)]
    for is_code in (False, True):
        assert without_blanks(shown, is_code=is_code) == without_blanks(whole, is_code=is_code)


def fenced(opening: str, lines: list[str]) -> str:
    marker = re.match(r"[`~]+", opening)
    assert marker is not None
    return "\n".join([opening, *lines, marker.group()])


def without_blanks(kinds: list[tuple[bool, str]], *, is_code: bool) -> str:
    """All lines of that kind without their blanks, since a line may be cut between two words."""
    return "".join("".join(line.split()) for kind, line in kinds if kind is is_code)


@requirement("channels:1")
def test_a_part_that_begins_after_a_block_of_code_does_not_open_it_again() -> None:
    lines = [f"Line {number} of the report, which goes on for a while about this and that." for number in range(57)]
    code = "\n".join(f"print({number})" for number in range(9))
    prose = "\n".join(f"And prose {number} after it." for number in range(70))
    text = "\n".join([*lines, "```py", code, "```", prose, "```sh", "ls", "```"])
    for cut_at in range(4000, measure(text, LengthUnit.UTF16), 3):
        form = ChannelForm(longest=cut_at, unit=LengthUnit.UTF16)
        for part in parts_of(text, form):
            assert all(is_code is line.startswith(("print", "ls")) for is_code, line in kinds_of(part)), part
