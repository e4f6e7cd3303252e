"""Thoughts between tags at the beginning of an answer, in every cut; words that mention a tag stay words."""

import pytest

from antiphon.agents.providers.thought_tags import MOST_HELD, NAMES, ThoughtTags


def read(text: str, size: int, *, is_whole_answer: bool = True) -> tuple[str, str]:
    """The words and the thoughts of the text, which comes in pieces of that size."""
    tags, words, thoughts = ThoughtTags(), "", ""
    for start in range(0, len(text), size):
        for piece, is_thought in tags.add(text[start : start + size]):
            words, thoughts = (words, thoughts + piece) if is_thought else (words + piece, thoughts)
    held, mistaken = tags.end(is_whole_answer=is_whole_answer)
    return words + held, thoughts.removesuffix(mistaken) if mistaken else thoughts


CASES = [
    *((f"<{name}>secret</{name}>\n\nHello", "Hello", "secret") for name in NAMES),
    ("\n <THINK>\nsecret</think> Hello", "Hello", "\nsecret"),
    ('<reasoning effort="high">a</reasoning><think>b</think>Hello', "Hello", "ab"),
    ("<think>a</thinking>b</think>Hello", "Hello", "a</thinking>b"),
    ("<think></think>Hello", "Hello", ""),
    ("<think>\nnever closed", "", "\nnever closed"),
    ("<think> is a tag", "<think> is a tag", ""),
    ("Hello <think>x</think>", "Hello <think>x</think>", ""),
    ("`<think>x</think>`", "`<think>x</think>`", ""),
    ("<thinkers>x</thinkers>", "<thinkers>x</thinkers>", ""),
    ("  Hello", "  Hello", ""),
    ("<", "<", ""),
    ("<3", "<3", ""),
    ("<think>İstanbul</think>İ", "İ", "İstanbul"),
]


@pytest.mark.parametrize(("text", "words", "thoughts"), CASES)
def test_thoughts_and_words_are_told_apart_wherever_the_pieces_are_cut(text: str, words: str, thoughts: str) -> None:
    for size in range(1, len(text) + 1):
        assert read(text, size) == (words, thoughts), size


def test_what_follows_an_open_tag_of_a_cut_answer_is_a_thought() -> None:
    assert read("<think> is", 2, is_whole_answer=False) == ("", " is")


def test_blanks_without_end_are_not_held_back_without_end() -> None:
    tags = ThoughtTags()
    assert "".join(piece for _ in range(MOST_HELD + 9) for piece, _ in tags.add(" "))
    assert tags.is_over
