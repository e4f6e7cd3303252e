"""Texts as blocks of Slack: all of the text, and nothing in it that calls people together."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.channels.markup import render, verbatim
from antiphon.channels.slack.blocks import blocks_of, defuse, escape
from antiphon.domain.channel_form import Button
from antiphon.domain.own_text import CodeSpan
from tests.claims import requirement

WORDS = st.text(st.sampled_from("ab *_`~#\n[](https://e.example)<!@>&herchnlvyo😀"), max_size=120)


def pieces(blocks: list[Any]) -> list[Any]:
    return [piece for block in blocks if block["type"] == "rich_text" for part in block["elements"]
            for piece in part["elements"]]  # fmt: skip


@requirement("channels:1")
@given(WORDS)
def test_blocks_hold_the_whole_text_and_no_mention(markdown: str) -> None:
    drawn = render(markdown)
    found = pieces(blocks_of(drawn, ()))
    assert "".join(each["text"] for each in found) == drawn.text
    assert {each["type"] for each in found} <= {"text", "link"}
    assert all(each["text"] for each in found)


@requirement("channels:1")
@pytest.mark.parametrize("said", ["<!channel>", "<!here|here>", "<@U1>", "<#C1>", "<!subteam^S1>"])
def test_no_control_sequence_comes_out_of_words_of_a_model(said: str) -> None:
    assert said not in escape(said) and said not in defuse(said)
    assert "<" not in escape(said)


@requirement("channels:1")
@given(WORDS)
def test_nobody_is_called_together(markdown: str) -> None:
    for text in (escape(markdown), defuse(markdown)):
        assert not any(f"@{each}" in text.lower() for each in ("here ", "channel ", "everyone "))
        assert not any(each in text for each in ("<!", "<@", "<#"))


@requirement("channels:1")
@given(WORDS, st.integers(0, 120))
def test_what_grows_begins_as_it_began(markdown: str, at: int) -> None:
    assert defuse(markdown).startswith(defuse(markdown[:at]))


def test_marks_become_styles() -> None:
    found = pieces(blocks_of(render("**bold `code`** and [a page](https://e.example)"), ()))
    assert [(each["text"], each.get("style"), each.get("url")) for each in found] == [
        ("bold ", {"bold": True}, None),
        ("code", {"bold": True, "code": True}, None),
        (" and ", None, None),
        ("a page", None, "https://e.example"),
    ]


def test_own_texts_are_drawn_as_they_are_with_code_and_buttons() -> None:
    text = "*Ann* asks: `x`\nrm -rf"
    block, actions = blocks_of(verbatim(text, (CodeSpan(16, 22, is_block=True),)), (Button(label="Yes", data="1:y"),))
    section, code = block["elements"]
    assert section["elements"] == [{"type": "text", "text": "*Ann* asks: `x`\n"}]
    assert (code["type"], code["elements"][0]["text"]) == ("rich_text_preformatted", "rm -rf")
    (button,) = actions["elements"]
    assert (button["value"], button["text"]["text"], button["action_id"]) == ("1:y", "Yes", "button_0")
