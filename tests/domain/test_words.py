"""What a text is found by, and the part of it that is shown."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.domain.errors import Invalid
from antiphon.domain.redaction import redact
from antiphon.domain.snippet import MAX_CHARACTERS, redacted_snippet, snippet
from antiphon.domain.words import MAX_WORD_BYTES, MAX_WORDS, PART, query_words, words_of

PIECES = st.sampled_from(
    [
        *"aZ9ß _-\"'*()\u0301\u0bcd\ufb01İ東京タワー한국",
        "தமிழ்",
        "e\u0301",
        "❤\ufe0f",
        "👩\u200d💻",
        "①",
        "™",
        "\ue000",
        "ab",
        " AND ",
    ]
)
TEXTS = st.text() | st.lists(PIECES, max_size=30).map("".join)


@given(TEXTS)
def test_every_word_of_a_text_finds_it(text: str) -> None:
    words = words_of(text)
    for word in words:
        assert set(query_words(word)) <= set(words)


@given(TEXTS, st.data())
def test_any_part_of_a_run_without_blanks_finds_it(text: str, data: st.DataObject) -> None:
    run = data.draw(st.text(alphabet="東京都に住むไทย한국어서울", min_size=1, max_size=12))
    start = data.draw(st.integers(0, len(run) - 1))
    part = run[start : data.draw(st.integers(start + 1, len(run)))]
    assert set(query_words(part)) <= set(words_of(f"{text} {run} {text}"))


@given(TEXTS)
def test_reading_words_again_changes_nothing(text: str) -> None:
    words = words_of(text)
    again = [word for word in words if len(word) != 2 or word.isascii()]  # pairs are read as singles, too
    assert set(words_of(" ".join(again))) == set(again)
    assert set(words_of(" ".join(words))) == set(words)


@given(TEXTS)
def test_words_are_what_both_databases_keep_whole(text: str) -> None:
    for word in words_of(text):
        assert 0 < len(word.encode()) <= MAX_WORD_BYTES
        assert all(unicodedata.category(c)[0] in "LMN" or unicodedata.category(c) == "Co" for c in word)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Write to Ana@Example.org!", "ana@example.org"),
        ("Write to Ana@Example.org!", "EXAMPLE ana"),
        ("தமிழ் மொழி", "தமிழ்"),
        ("cafe\u0301", "CAFÉ"),
        ("ﬁnal straße", "FINAL STRASSE"),
        ("１２３ Ｗｉｄｅ", "123 wide"),
        ("東京都に住む", "東京"),
        ("東京都に住む", "京"),
        ("서울에서 만나요", "서울"),
        ("co\u00adoperate", "cooperate"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ('say "AND" or NOT', "and not"),
        ("half-life", "half*life"),
    ],
)
def test_these_are_found(text: str, query: str) -> None:
    assert set(query_words(query)) <= set(words_of(text))


def test_a_word_is_not_found_by_its_beginning() -> None:
    assert not set(query_words("tok")) <= set(words_of("tokens"))


def test_of_a_long_word_the_beginning_counts_on_both_sides() -> None:
    for letter in "xéத":
        word = letter * 500
        assert words_of(word) == query_words(word) == words_of(word[:300])
    assert len(words_of(" ".join(map(str, range(20_000))))) == MAX_WORDS


@pytest.mark.parametrize("query", ["", "  ", '"*" ()', "❤\ufe0f 👩\u200d💻", "a" * 1001, " ".join(map(str, range(33)))])
def test_a_query_without_a_word_or_with_too_many_is_refused_with_advice(query: str) -> None:
    with pytest.raises(Invalid, match=r"Use one|fewer") as refused:
        query_words(query)
    assert refused.value.code == "invalid_query"


@given(TEXTS, TEXTS, st.integers(0, 600))
def test_a_snippet_is_short_and_shows_the_word(before: str, after: str, filled: int) -> None:
    text = f"{before} {'fill ' * filled} needle {'fill ' * filled} {after}"
    shown = snippet(text, ["needle"])
    assert len(shown) <= MAX_CHARACTERS and "needle" in shown
    assert shown.startswith("…") or " ".join(text.split()).startswith(shown.removesuffix("…"))


def test_a_snippet_shows_the_hit_in_a_text_without_blanks() -> None:
    text = "あ" * 5_000 + "東京" + "い" * 5_000
    shown = snippet(text, ["東京"])
    assert len(shown) <= MAX_CHARACTERS and "東京" in shown
    assert shown[0] == shown[-1] == "…"


def test_a_snippet_cuts_no_character_from_its_marks() -> None:
    shown = snippet("தி" * 1_000, ["missing"])
    assert shown.endswith("தி…")


def test_a_secret_that_would_be_cut_is_redacted_whole() -> None:
    secret = "sk-" + "a1" * 40
    text = "x " * 120 + secret + " needle " + "y " * 200
    shown = snippet(redact(text).text, ["needle"])
    assert "needle" in shown and "a1a1" not in shown


@pytest.mark.parametrize("filled", [0, 10, PART - 40, PART - 1, PART, 3 * PART + 1])
def test_a_hit_is_shown_wherever_it_stands(filled: int) -> None:
    text = "fill " * (filled // 5) + "x" * (filled % 5) + " password=hunter22 needle " + "fill " * 9_000
    shown = redacted_snippet(text, ["needle"])
    assert "[redacted] needle fill" in shown and len(shown) <= MAX_CHARACTERS
    assert "hunter22" not in shown


@given(TEXTS, TEXTS, st.integers(0, 600))
def test_a_redacted_snippet_is_the_snippet_of_the_redacted_text(before: str, after: str, filled: int) -> None:
    text = f"{before} {'fill ' * filled} needle {'fill ' * filled} {after}"
    assert redacted_snippet(text, ["needle"]) == snippet(redact(text).text, ["needle"])


@pytest.mark.parametrize("filled", [PART - 2, PART - 1, PART])
def test_words_are_whole_where_a_long_text_is_read_in_parts(filled: int) -> None:
    assert "東京" in words_of("あ" * filled + "東京" + "い" * PART)
    assert "needle" in words_of("f " * (filled // 2) + "needle " + "g " * PART)


@given(st.text(alphabet="abN _-\n\t.\x1c", max_size=400), st.lists(st.text(alphabet="abn", min_size=1, max_size=3)))
def test_an_ascii_text_has_its_hit_where_any_text_has_it(before: str, words: list[str]) -> None:
    text = before + " fill" * 200
    assert snippet(text, words) == snippet(f"{text} ä", words)


def test_a_word_within_another_is_no_hit() -> None:
    shown = snippet("Xneedle " + "fill " * 200 + "NEEDLE " + "fill " * 200, ["needle"])
    assert "fill NEEDLE fill" in shown and "Xneedle" not in shown
