"""Prompts as bytes: what was encoded before is not encoded again, and is what encoding everything would give."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.agents.model import PromptEntry, PromptText
from antiphon.agents.providers.anthropic_dialect import AnthropicDialect
from antiphon.agents.providers.chat_dialect import ChatDialect
from antiphon.agents.providers.conversation import Conversation
from antiphon.agents.providers.dialect import Dialect, GrowingAnswer, Piece
from antiphon.agents.providers.event_lines import MAX_EVENT_BYTES, EventLines
from antiphon.domain.message import (
    AssistantMessage,
    ImagePart,
    JsonObject,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResult,
    UserMessage,
    text_content,
)

DIALECTS: Sequence[Callable[[str], Dialect]] = (ChatDialect, AnthropicDialect)
OWN = "fake"


def _user(text: str) -> list[PromptEntry]:
    return [UserMessage(message_id="u", content=text_content(text))]


def _image(text: str) -> list[PromptEntry]:
    return [UserMessage(message_id="u", content=(TextPart(text=text), ImagePart(mime_type="image/png", data="aGk=")))]


def _step(text: str, call_ids: Sequence[str], provider: str | None) -> list[PromptEntry]:
    opaque: JsonObject | None = {"provider": provider, "id": "reasoning", "signature": "c2ln"} if provider else None
    content: list[Part] = [ThinkingPart(text="hm", provider=opaque), TextPart(text=text)]
    content += [ToolCallPart(call_id=call_id, name="add", arguments=text) for call_id in call_ids]
    results = [
        ToolResult(
            message_id="r",
            call_seq=1,
            call_index=index,
            tool="add",
            tool_call_id=call_id,
            content=text_content(text),
            is_error=bool(index % 2),
        )
        for index, call_id in enumerate(call_ids)
    ]
    return [AssistantMessage(message_id="a", content=tuple(content), saw=0), *results]


TEXTS = st.sampled_from(["", " ", "hello", '{"a": 1}', "[1]", '{"a": ', 'quote " and \\ and é🎈', "x" * 300])
BLOCKS = st.one_of(
    TEXTS.map(_user),
    TEXTS.map(_image),
    TEXTS.map(lambda text: [PromptText(text=text)]),
    st.builds(
        _step,
        TEXTS,
        st.lists(st.sampled_from(["x", "y", "call_1", "fc|" + "x" * 60]), max_size=3),
        st.sampled_from([OWN, "other", None]),
    ),
)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(blocks=st.lists(BLOCKS, max_size=8), cuts=st.lists(st.integers(0, 8), max_size=4))
def test_a_prompt_that_grows_is_encoded_as_if_it_had_always_been_whole(
    dialect: Callable[[str], Dialect], blocks: list[list[PromptEntry]], cuts: list[int]
) -> None:
    grown = Conversation(dialect(OWN))
    entries = [entry for block in blocks for entry in block]
    for cut in sorted(cuts):
        grown.messages([entry for block in blocks[:cut] for entry in block])
    at_once = Conversation(dialect(OWN)).messages(entries)
    assert grown.messages(entries) == at_once
    json.loads(b"[%s]" % at_once)


class _Noting:
    """A dialect that keeps the pieces that it made."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.pieces: list[Piece] = []

    def _noted(self, piece: Piece | None) -> Piece | None:
        self.pieces += [piece] if piece is not None else []
        return piece

    def user(self, content: tuple[Part, ...]) -> Piece | None:
        return self._noted(self._dialect.user(content))

    def assistant(self, message: AssistantMessage, call_ids: Sequence[str]) -> Piece | None:
        return self._noted(self._dialect.assistant(message, call_ids))

    def result(self, result: ToolResult, call_id: str) -> Piece:
        piece = self._dialect.result(result, call_id)
        self.pieces.append(piece)
        return piece

    def join(self, pieces: Sequence[Piece], passing: str = "") -> bytes:
        return self._dialect.join(pieces, passing)

    def answer(self) -> GrowingAnswer:
        return self._dialect.answer()


@pytest.mark.parametrize("dialect", DIALECTS)
@given(blocks=st.lists(BLOCKS, max_size=8), passing=st.sampled_from(["", "Notes"]))
def test_what_was_joined_before_is_as_if_all_were_joined_at_once(
    dialect: Callable[[str], Dialect], blocks: list[list[PromptEntry]], passing: str
) -> None:
    noting = _Noting(dialect(OWN))
    conversation = Conversation(noting)
    for end in range(len(blocks) + 1):
        messages = conversation.messages([entry for block in blocks[:end] for entry in block], passing)
        assert messages == dialect(OWN).join(noting.pieces, passing)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(blocks=st.lists(BLOCKS, min_size=1, max_size=6), others=st.lists(BLOCKS, max_size=6))
def test_a_prompt_that_is_another_one_is_encoded_anew(
    dialect: Callable[[str], Dialect], blocks: list[list[PromptEntry]], others: list[list[PromptEntry]]
) -> None:
    used = Conversation(dialect(OWN))
    used.messages([entry for block in blocks for entry in block])
    entries = [entry for block in others for entry in block]
    assert used.messages(entries) == Conversation(dialect(OWN)).messages(entries)


def _refuse_as_mistral(messages: Sequence[dict[str, Any]]) -> None:
    """What Mistral's template of chats and its API refuse, the first message's role aside."""
    turns = [m for m in messages if m["role"] == "user" or (m["role"] == "assistant" and "tool_calls" not in m)]
    for before, after in pairwise(turns):
        assert before["role"] != after["role"], "after the system message, user and assistant must alternate"
    for before, after in pairwise(messages):
        assert (before["role"], after["role"]) != ("tool", "user"), "unexpected role 'user' after role 'tool'"


def _refuse_as_anthropic(messages: Sequence[dict[str, Any]]) -> None:
    for before, after in pairwise(messages):
        assert before["role"] != after["role"]
    for message in messages:
        assert message["content"], "messages: text content blocks must be non-empty"


def _turn(users: list[list[PromptEntry]], calls: list[list[str]], answer: str) -> list[PromptEntry]:
    entries = [entry for user in users for entry in user]
    entries += [entry for call_ids in calls for entry in _step("let me see", call_ids, None)]
    return [*entries, AssistantMessage(message_id="a", content=text_content(answer))] if answer else entries


TURN = st.builds(
    _turn,
    st.lists(st.one_of(TEXTS.map(_image), st.sampled_from(["hello", "and this"]).map(_user)), min_size=1, max_size=3),
    st.lists(st.lists(st.sampled_from(["x", "y"]), min_size=1, max_size=2), max_size=2),
    st.sampled_from(["done", ""]),
)
"""What a turn adds: messages, calls with their results, and the answer, unless the turn was broken off."""


@pytest.mark.parametrize(
    ("dialect", "refuse"), [(ChatDialect, _refuse_as_mistral), (AnthropicDialect, _refuse_as_anthropic)]
)
@pytest.mark.parametrize("passing", ["", 'Notes: "é"'])
@given(turns=st.lists(TURN, min_size=1, max_size=4))
def test_roles_alternate_and_what_passes_ends_the_newest_message(
    dialect: Callable[[str], Dialect],
    refuse: Callable[[Sequence[dict[str, Any]]], None],
    passing: str,
    turns: list[list[PromptEntry]],
) -> None:
    entries = [entry for turn in turns for entry in turn]
    while isinstance(entries[-1], AssistantMessage):
        entries.pop()
    conversation = Conversation(dialect(OWN))
    messages = json.loads(b"[%s]" % conversation.messages(entries, passing))
    refuse(messages)
    plain = json.loads(b"[%s]" % conversation.messages(entries))
    assert len(messages) == len(plain) and messages[:-1] == plain[:-1]
    assert messages[-1]["role"] == plain[-1]["role"]
    said = json.dumps(messages[-1], ensure_ascii=False)
    assert json.dumps(passing, ensure_ascii=False)[1:-1] in said
    assert passing or messages == plain
    for entry in entries:
        if isinstance(entry, UserMessage) and entry.text.strip():
            assert json.dumps(entry.text, ensure_ascii=False)[1:-1] in json.dumps(messages, ensure_ascii=False)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (text_content("hello"), "hello\n\nNotes"),
        (
            (ImagePart(mime_type="image/png", data="aGk="),),
            [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                {"type": "text", "text": "Notes"},
            ],
        ),
    ],
)
def test_what_passes_keeps_the_form_of_the_message_that_it_ends(content: tuple[Part, ...], wanted: object) -> None:
    conversation = Conversation(ChatDialect(OWN))
    [message] = json.loads(b"[%s]" % conversation.messages([UserMessage(message_id="u", content=content)], "Notes"))
    assert message == {"role": "user", "content": wanted}


class _Counting(ChatDialect):
    def __init__(self) -> None:
        super().__init__(OWN)
        self.encoded = 0

    def user(self, content: tuple[Part, ...]) -> Piece:
        self.encoded += 1
        return super().user(content)


def test_each_entry_is_encoded_once() -> None:
    dialect = _Counting()
    conversation = Conversation(dialect)
    entries: list[PromptEntry] = []
    for number in range(100):
        entries += _user(str(number))
        conversation.messages(entries)
    assert dialect.encoded == 100
    assert conversation.size > 100 * len('{"role":"user","content":"1"}')


@given(
    texts=st.lists(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=40), max_size=6),
    newline=st.sampled_from(["\n", "\r\n"]),
    size=st.integers(1, 50),
    is_ended=st.booleans(),
)
def test_events_are_the_same_wherever_the_stream_is_split(
    texts: list[str], newline: str, size: int, is_ended: bool
) -> None:
    stream = "".join(f": note{newline}event: x{newline}data: {text}{newline}{newline}" for text in texts)
    data = (stream if is_ended else stream.removesuffix(newline)).encode()
    lines = EventLines()
    found = [event for start in range(0, len(data), size) for event in lines.feed(data[start : start + size])]
    found += lines.end()
    assert found == [text.encode().strip() for text in texts]


def test_an_event_of_several_lines_is_one() -> None:
    assert EventLines().feed(b"data: {\ndata: }\n\n") == [b"{\n}"]


@pytest.mark.parametrize("line", [b"data: x\n", b"x"])
def test_an_event_without_end_is_given_up(line: bytes) -> None:
    lines = EventLines()
    with pytest.raises(ValueError, match="larger than"):
        for _ in range(0, MAX_EVENT_BYTES + 100_000, 50_000):
            lines.feed(line * (50_000 // len(line)))
