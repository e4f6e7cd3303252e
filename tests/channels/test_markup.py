"""The Markdown of models as text with marked spans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.channels.markup import render


def shown(markdown: str) -> tuple[str, list[tuple[str, str]]]:
    """The text, and each span with its part of it."""
    drawn = render(markdown)
    text, spans = drawn.text, drawn.spans
    units = text.encode("utf-16-le", "surrogatepass")
    return text, [
        (each.kind, units[each.offset * 2 : (each.offset + each.length) * 2].decode("utf-16-le")) for each in spans
    ]


@pytest.mark.parametrize(
    ("markdown", "text", "spans"),
    [
        ("plain", "plain", []),
        ("a **b** c", "a b c", [("bold", "b")]),
        ("😀 **b** `c`", "😀 b c", [("bold", "b"), ("code", "c")]),
        ("*i* and _i_ and ~~s~~", "i and i and s", [("italic", "i"), ("italic", "i"), ("strikethrough", "s")]),
        ("**b *i* `c`**", "b i c", [("bold", "b i c"), ("italic", "i"), ("code", "c")]),
        ("# Title\ntext", "Title\ntext", [("bold", "Title")]),
        ("[here](https://example.org/x)", "here", [("text_link", "here")]),
        ("[bad](javascript:x) <b>&amp;", "[bad](javascript:x) <b>&amp;", []),
        ("snake_case_name 2*3*4 ** x", "snake_case_name 2*3*4 ** x", []),
        ("- one\n- two", "- one\n- two", []),
        ("`**not bold**`", "**not bold**", [("code", "**not bold**")]),
        ("x\n```python\na = **b**\n```\ny", "x\na = **b**\ny", [("pre", "a = **b**")]),
        ("```\nopen", "```\nopen", []),
        ("****", "****", []),
        ("**a **b**", "**a b", [("bold", "b")]),
        ("```a\n```b\nx\n```\n```c\ny", "```b\nx\n```c\ny", [("pre", "```b\nx")]),
        ("```\n```", "```\n```", []),
    ],
)
def test_marks_become_spans_and_everything_else_stays(markdown: str, text: str, spans: list[tuple[str, str]]) -> None:
    assert shown(markdown) == (text, spans)


def test_a_block_of_code_keeps_its_language() -> None:
    spans = render("```c++\nx\n```").spans
    assert [(each.kind, each.language) for each in spans] == [("pre", "c++")]


@given(st.text(alphabet="ab *_`~#[]()\n😀:/htps.", max_size=60))
def test_spans_lie_within_a_text_that_is_no_longer_than_before(markdown: str) -> None:
    drawn = render(markdown)
    text, spans = drawn.text, drawn.spans
    units = len(text.encode("utf-16-le")) // 2
    assert len(text) <= len(markdown)
    assert all(each.offset >= 0 and each.length > 0 and each.offset + each.length <= units for each in spans)
