"""Requests for approval and questions to owners, as each surface shows them: what people approve is what runs.

Drawn arguments, names and titles; Telegram, the page, the command line and what leaves by webhooks, side by side.
"""

import html
import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.agents.call_arguments import read_call_arguments
from antiphon.channels.markup import verbatim
from antiphon.channels.telegram.channel import FORM as TELEGRAM
from antiphon.channels.telegram.settings import LONGEST_TEXT
from antiphon.channels.webhook.channel import body_of
from antiphon.cli.rendering.rows import approval_lines, call_line
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Approval, ApprovalState, AskedCall, hash_of_text
from antiphon.domain.channel_form import PLAIN_FORM, ChannelForm, DeliveryPart, LengthUnit
from antiphon.domain.classification import PUBLIC, Integrity
from antiphon.domain.delivery import Delivery, DeliveryStatus
from antiphon.domain.distrust import ReadSource
from antiphon.domain.ids import AgentId, ApprovalId, RunId, SessionId, SessionRow
from antiphon.domain.own_text import Code, OwnText, own_text
from antiphon.domain.parts import measure, parts_of_own
from antiphon.domain.release import Release, shown_words
from antiphon.domain.request_text import MOST_CALLS, draw_request, shows_read, shows_whole
from antiphon.domain.session import DeliveryContext
from antiphon.domain.source_words import was_read
from antiphon.domain.text import exact, plain, shown_name
from antiphon.gateway.page.entries import request_entry
from antiphon.gateway.page.rendering import render
from tests.claims import requirement
from tests.domain.test_exact import is_unseen

NASTY = st.sampled_from(
    [
        *("`", "```", "````\n", "~~~", "*", "**", "_", "||", "[a](http://x.y)", "<b>", "</pre>", "&lt;", "{{", "{%"),
        *(
            "@mention",
            "/approve",
            "#tag",
            "http://evil.example",
            "mail@x.y",
            "Approve once",
            '"',
            "\\",
            "\\u202e",
            "\n",
        ),
        *("\u202e", "\u2066", "\u200b", "\u200f", "\ufe0f", "\U000e0041", "\U000e0101", "\u17b4", "\u180e", "\u3164"),
        *("\u2028", "\u00ad", "\u0000", "\x1b[2J", "\x7f", "\ue000", "\U0010ffff", "\ud800", "\u0085", "\u2800"),
        *(
            " " * 40,
            " " * 900,
            "😀",
            "👩\u200d💻",
            "א",
            "ع",
            "e\u0301",
            "rm -rf /",
            "x" * 300,
            "; and 3 characters are left out",
        ),
    ]
)
TEXTS = st.lists(NASTY | st.text(max_size=8) | st.characters(), max_size=12).map("".join)
ARGUMENTS = st.dictionaries(TEXTS.filter(lambda each: len(each) < 200), TEXTS, max_size=4).map(
    lambda each: read_call_arguments(json.dumps(each, ensure_ascii=False)).text
)
SMALL = ChannelForm(longest=1_000)


def approval(arguments: Sequence[str], *, tool: str = "delete") -> Approval:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    calls = [
        AskedCall(
            id=str(number),
            message_seq=2,
            index=number - 1,
            tool=tool,
            arguments=each,
            sha256=hash_of_text(each),
            definition="d",
            reason="It may delete something.",
        )
        for number, each in enumerate(arguments, start=1)
    ]
    return Approval(
        id=ApprovalId("appr_0123456789abcdef"),
        session=SessionRow(1),
        session_key="agent:main:main",
        session_id=SessionId("s"),
        run=RunId("run_1"),
        agent_id=AgentId("main"),
        principal=OWNER,
        state=ApprovalState.PENDING,
        calls=tuple(calls),
        asked_at=now,
        expires_at=now,
    )


def blocks(message: OwnText) -> list[str]:
    return [message.text[span.start : span.end] for span in message.spans if span.is_block]


def on_telegram(message: OwnText) -> tuple[str, list[str]]:
    """The text that leaves, and what it marks as blocks, by units of UTF-16 as Telegram counts them."""
    (part,) = parts_of_own(message, TELEGRAM)
    drawn = verbatim(part.text, part.spans)
    units = drawn.text.encode("utf-16-le")
    assert {each.kind for each in drawn.spans} <= {"pre", "code"} and not any(each.url for each in drawn.spans)
    return drawn.text, [
        units[2 * each.offset : 2 * (each.offset + each.length)].decode("utf-16-le")
        for each in drawn.spans
        if each.kind == "pre"
    ]


def on_webhook(message: OwnText) -> dict[str, str | bool]:
    """What a webhook that draws nothing reads of the bytes that it is posted."""
    (part,) = parts_of_own(message, PLAIN_FORM)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    delivery = Delivery(
        id="dlv_1",
        session=None,
        session_key=None,
        session_id=None,
        run_id=None,
        place=DeliveryContext(channel="webhook", to="anna", account_id="door"),
        text=message.text,
        spans=message.spans,
        made_of=PUBLIC,
        status=DeliveryStatus.CLAIMED,
        due_at=now,
        created_at=now,
    )
    return json.loads(body_of(delivery, DeliveryPart(index=0, text=part.text, spans=part.spans), "door"))


def on_page(asked: Approval) -> tuple[list[str], bool]:
    """The texts of the blocks of the card, as a browser reads them, and whether it has a button that approves."""
    entry = request_entry(asked, {"person:owner": "owner"}, agent="main", title=None)
    card = str(render("request.html", {"entry": entry}))
    found = re.findall(r'<pre class="input"[^>]*>(.*?)</pre>', card, re.DOTALL)
    return [html.unescape(each) for each in found], 'data-word="once"' in card


def at_command_line(asked: Approval) -> list[str]:
    event = {
        "type": "approval_requested",
        "data": {
            "approvalId": asked.id,
            "calls": [{"tool": call.tool, "arguments": call.arguments} for call in asked.calls],
        },
    }
    return [plain(line) for line in approval_lines(event)]  # pyright: ignore[reportArgumentType]


@requirement("approvals:1", "approvals:4")
def test_every_surface_shows_exactly_what_runs_or_does_not_let_it_be_approved(*, is_soak: bool) -> None:
    @settings(max_examples=10_000 if is_soak else 200, deadline=None)
    @given(st.lists(ARGUMENTS, min_size=1, max_size=7), TEXTS)
    def holds(arguments: list[str], name: str) -> None:
        asked = approval(arguments)
        shown = [exact(each) for each in arguments]
        for form in (TELEGRAM, PLAIN_FORM, SMALL):
            message = draw_request(asked, {"person:owner": name}, form)
            assert not any(map(is_unseen, message.text.replace("\n", "")))
            if form.longest is not None:
                assert measure(message.text, form.unit) <= form.longest - 64
            is_whole = shows_whole(message, asked)
            assert is_whole is (blocks(message) == shown and len(arguments) <= MOST_CALLS)
            if not is_whole:
                assert f"antiphon approvals show {asked.id}" in message.text
        message = draw_request(asked, {"person:owner": name}, TELEGRAM)
        text, marked = on_telegram(message)
        assert (text, marked) == (message.text, blocks(message))
        plain_message = draw_request(asked, {"person:owner": name}, PLAIN_FORM)
        body = on_webhook(plain_message)
        assert (body["text"], body.get("isVerbatim")) == (plain_message.text, True)
        assert blocks(plain_message) == shown[: len(blocks(plain_message))]
        card, may_approve = on_page(asked)
        assert card == shown and may_approve
        lines = at_command_line(asked)
        assert [line for line in lines if "waits for approval" in line] == [
            f"  ◆ waits for approval: delete {each}" for each in shown
        ]
        for each in shown:
            assert json.loads(each) == json.loads(arguments[shown.index(each)])

    holds()


def source(actor: str, tool: str | None, words: str = "") -> ReadSource:
    return ReadSource(seq=1, sha256="a" * 64, integrity=Integrity.UNTRUSTED, actor=actor, tool=tool, first_words=words)


SOURCES = st.lists(
    st.builds(
        source,
        st.one_of(st.sampled_from(["agent", "settings", "person:ann"]), TEXTS),
        st.one_of(st.none(), st.sampled_from(["memory", "summary", "mail_read"]), TEXTS.filter(bool)),
        TEXTS,
    ),
    min_size=1,
    max_size=40,
)


@requirement("approvals:4", "flow:10")
def test_what_was_read_is_said_before_the_calls_and_hides_nothing(*, is_soak: bool) -> None:
    """In one sentence, as far as names go; what it says takes no block, so that only the calls decide."""

    @settings(max_examples=10_000 if is_soak else 200, deadline=None)
    @given(SOURCES, st.lists(ARGUMENTS, min_size=1, max_size=7), TEXTS)
    def holds(sources: list[ReadSource], arguments: list[str], name: str) -> None:
        asked = replace(approval(arguments), sources=tuple(sources))
        names = {"person:owner": "Olga", "person:ann": name}
        for form in (TELEGRAM, PLAIN_FORM, SMALL):
            message = draw_request(asked, names, form)
            sentence = was_read(asked.sources, names).text
            assert message.text.startswith(f"Approval needed. {sentence} Agent main now wants to do this for Olga:\n\n")
            assert not any(map(is_unseen, sentence)) and "\n" not in sentence and len(sentence) < 700
            assert sentence[0].isupper() or not sentence[0].isalpha()
            assert shows_read(message, asked, names)
            assert not shows_read(draw_request(replace(asked, sources=()), names, form), asked, names)
            if form.longest is not None:
                assert measure(message.text, form.unit) <= form.longest - 64
            is_whole = blocks(message) == [exact(each) for each in arguments] and len(arguments) <= MOST_CALLS
            assert shows_whole(message, asked) is is_whole
        text, marked = on_telegram(draw_request(asked, names, TELEGRAM))
        assert marked == blocks(draw_request(asked, names, TELEGRAM)) and sentence in text

    holds()


@requirement("flow:11", "approvals:4")
def test_words_to_release_are_shown_exactly_or_cannot_be_released(*, is_soak: bool) -> None:
    @settings(max_examples=10_000 if is_soak else 200, deadline=None)
    @given(st.lists(TEXTS, min_size=1, max_size=3), TEXTS)
    def holds(texts: list[str], name: str) -> None:
        asked = approval(["{}"] * len(texts), tool="message")
        calls = zip(asked.calls, texts, strict=True)
        released = [Release(whose="Private to you", to=name, text=text, sha256="0") for text in texts]
        asked = replace(
            asked,
            calls=tuple(replace(call, release=each) for (call, _), each in zip(calls, released, strict=True)),
        )
        shown = [exact(shown_words(each)) for each in texts]
        assert len(set(shown)) == len(set(texts))
        for form in (TELEGRAM, PLAIN_FORM, SMALL):
            message = draw_request(asked, {"person:owner": "Olga"}, form)
            assert not any(map(is_unseen, message.text.replace("\n", "")))
            assert shows_whole(message, asked) is (blocks(message) == shown)
            assert ("Send once?" in message.text) and "Private to you → " in message.text
        card, may_approve = on_page(asked)
        assert card == shown and may_approve

    holds()


@requirement("approvals:4", "flow:10")
def test_what_was_read_is_counted_by_what_it_is_and_whose() -> None:
    def said(*pairs: tuple[str, str | None]) -> str:
        sources = [
            ReadSource(seq=1, sha256="a", integrity=Integrity.UNTRUSTED, actor=actor, tool=tool)
            for actor, tool in pairs
        ]
        return was_read(sources, {"person:ann": "Ann"}).text

    assert said(("agent", "page")) == "A result of page was read."
    assert (
        said(("agent", "page"), ("agent", "mail"), ("agent", "mail"))
        == "A result of page and 2 results of mail were read."
    )
    assert said(("person:ann", None), ("agent", "memory")) == "A message of Ann and a note were read."
    assert said(("agent", "summary"), ("person:eve", None)) == (
        "A summary of earlier messages and a message of person:eve were read."
    )
    assert said(("settings", None)) == "What the settings do not trust was read."
    assert (
        said(*[("agent", each) for each in "abccde"])
        == "A result of a, a result of b, 2 results of c and 2 more were read."
    )


@requirement("approvals:4")
def test_a_long_call_is_cut_in_the_middle_and_keeps_its_end(*, is_soak: bool) -> None:
    @settings(max_examples=2_000 if is_soak else 60, deadline=None)
    @given(TEXTS, st.integers(5_000, 30_000), st.sampled_from([" ", "x", "😀", "\u200b"]), TEXTS)
    def holds(before: str, length: int, filling: str, after: str) -> None:
        arguments = read_call_arguments(json.dumps({"a": before + filling * length + after}, ensure_ascii=False)).text
        asked = approval([arguments])
        message = draw_request(asked, {"person:owner": "Ann"}, TELEGRAM)
        assert not shows_whole(message, asked)
        first, last = blocks(message)
        assert exact(arguments[: len(arguments) // 2]).startswith(first)
        assert exact(arguments[-5_000:]).endswith(last) and len(first) > 300 and len(last) > 300
        assert measure(message.text, LengthUnit.UTF16) <= LONGEST_TEXT - 64
        line = call_line({"tool": "t", "arguments": arguments}, 400)
        assert len(line) == 400 and line.endswith(exact(arguments)[-150:])

    holds()


@requirement("approvals:4")
def test_a_card_that_is_cut_keeps_its_end_and_has_no_button_that_approves() -> None:
    arguments = '{"command":"echo hello%s; rm -rf /"}' % (" " * 30_000)
    (card,), may_approve = on_page(approval([arguments]))
    assert not may_approve and card.endswith('; rm -rf /"}') and card.startswith('{"command":"echo hello ')
    assert "characters are left out here" in card and len(card) < 21_000


@requirement("approvals:4")
def test_sixty_calls_are_not_approved_in_a_chat() -> None:
    for count in (MOST_CALLS, MOST_CALLS + 1, 60):
        asked = approval(['{"name":"x"}'] * count)
        message = draw_request(asked, {"person:owner": "Ann"}, TELEGRAM)
        assert shows_whole(message, asked) is (count <= MOST_CALLS)
        assert (f"And {count - MOST_CALLS} more calls" in message.text) is (count > MOST_CALLS)


@requirement("approvals:4", "access:3", "groups:1")
def test_names_and_titles_are_shown_as_they_are_and_hide_nothing(*, is_soak: bool) -> None:
    @settings(max_examples=10_000 if is_soak else 300, deadline=None)
    @given(TEXTS)
    def holds(name: str) -> None:
        question = own_text("This bot is now in the group ", Code(shown_name(name)), ". Allow?")
        (part,) = parts_of_own(question, TELEGRAM)
        drawn = verbatim(part.text, part.spans)
        assert drawn.text == question.text and "\n" not in drawn.text
        assert not any(map(is_unseen, drawn.text)) and len(drawn.text) < 250
        units = drawn.text.encode("utf-16-le")
        assert [
            units[2 * each.offset : 2 * (each.offset + each.length)].decode("utf-16-le") for each in drawn.spans
        ] == ([shown_name(name)] if shown_name(name) else [])

    holds()


def _squeezed(text: str) -> str:
    return "".join(text.split())


@requirement("channels:1")
def test_parts_of_an_own_text_hold_it_whole_with_its_spans(*, is_soak: bool) -> None:
    @settings(max_examples=10_000 if is_soak else 200, deadline=None)
    @given(st.lists(st.tuples(TEXTS, TEXTS, st.booleans()), min_size=1, max_size=4))
    def holds(pieces: list[tuple[str, str, bool]]) -> None:
        own = own_text(*(each for say, code, is_block in pieces for each in (say, Code(code, is_block))))
        parts = parts_of_own(own, SMALL)
        assert _squeezed("".join(part.text for part in parts)) == _squeezed(own.text)
        marked = "".join(part.text[each.start : each.end] for part in parts for each in part.spans)
        assert _squeezed(marked) == _squeezed("".join(code for _, code, _ in pieces))
        for part in parts:
            assert all(0 <= each.start < each.end <= len(part.text) for each in part.spans)

    holds()


@requirement("approvals:1")
def test_no_invisible_character_of_unicode_passes_any_surface() -> None:
    hidden = "".join(each for each in map(chr, range(sys.maxunicode + 1)) if is_unseen(each) and each >= " ")
    assigned = [each for each in hidden if not ord(each) >= 0xE1000 and not 0x20000 <= ord(each) < 0xE0000]
    for start in range(0, len(assigned), 1_500):
        arguments = json.dumps({"a": "".join(assigned[start : start + 1_500])}, ensure_ascii=False)
        asked = approval([read_call_arguments(arguments).text])
        told = [draw_request(asked, {"person:owner": "Ann"}, form).text for form in (TELEGRAM, PLAIN_FORM)]
        cards, _ = on_page(asked)
        for text in (*told, *cards, *at_command_line(asked), call_line({"tool": "t", "arguments": arguments}, 400)):
            assert not any(map(is_unseen, text.replace("\n", "")))
