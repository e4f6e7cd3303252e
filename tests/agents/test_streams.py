"""Answers as servers really stream them: what OpenAI's protocol leaves open, and what breaks it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from antiphon.agents.providers.anthropic_dialect import AnthropicDialect
from antiphon.agents.providers.chat_dialect import ChatDialect
from antiphon.agents.providers.conversation import Conversation
from antiphon.agents.providers.dialect import MAX_NAME, MOST_TOKENS, GrowingAnswer
from antiphon.agents.providers.event_lines import MAX_EVENT_BYTES, MAX_STREAM_BYTES, EventLines
from antiphon.domain.message import (
    MAX_PARTS,
    AssistantMessage,
    TextPart,
    ToolCallPart,
    ToolResult,
    UserMessage,
    text_content,
)

Event = Mapping[str, Any]

TEXT: Event = {"choices": [{"index": 0, "delta": {"content": "hi"}}]}
STOP: Event = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def answered(*events: object) -> GrowingAnswer:
    answer = ChatDialect("fake").answer()
    for event in events:
        answer.add(event if isinstance(event, bytes) else json.dumps(event).encode())
    return answer


def delta(**fields: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields}]}


def calls(*deltas: Mapping[str, object]) -> list[tuple[str, str, str]]:
    """Ids, names and arguments of the calls that the deltas make."""
    found = answered(*(delta(tool_calls=[each]) for each in deltas), STOP).content()
    return [(part.call_id, part.name, part.arguments) for part in found if isinstance(part, ToolCallPart)]


ODD: Sequence[Event] = [
    {"usage": {"prompt_tokens": 12.0, "completion_tokens": "3"}},
    {"usage": {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": []}},
    {"usage": []},
    {"model": 7},
    {"choices": {}},
    {"choices": [None, 5]},
    {"choices": [{"delta": None, "finish_reason": False}]},
    {"choices": [{"delta": {"refusal": False, "content": {}, "tool_calls": {}}}]},
    {"choices": [{"delta": {"reasoning": {"a": 1}, "content": None}}]},
    {"choices": [{"delta": {"tool_calls": [{"index": "0", "id": 5, "function": None, "extra_content": "x"}]}}]},
    {"error": None},
    {"error": ""},
]


@pytest.mark.parametrize("odd", ODD)
def test_fields_of_another_type_are_left_out_and_the_answer_is_whole(odd: object) -> None:
    answer = answered(TEXT, odd, STOP)
    assert answer.is_whole
    assert answer.content() == [TextPart(text="hi")]


def test_counts_that_can_be_read_are_read_and_stay_within_bounds() -> None:
    odd = answered({"usage": {"prompt_tokens": 12.0, "completion_tokens": "3"}}, {"usage": {}}).usage
    assert odd is not None and (odd.input_tokens, odd.output_tokens) == (12, 3)
    wild = answered({"usage": {"prompt_tokens": -1_000_000, "completion_tokens": 10**30}}).usage
    assert wild is not None and (wild.input_tokens, wild.output_tokens) in ((0, MOST_TOKENS), (0, 0))


@pytest.mark.parametrize("end", [b"[DONE]", b"[DONE],"])
def test_what_follows_the_end_of_an_answer_is_ignored(end: bytes) -> None:
    answer = answered(TEXT, STOP, end, b"bye", {"error": {"message": "late"}})
    assert answer.is_ended and answer.is_whole
    assert answer.content() == [TextPart(text="hi")]


def test_calls_without_index_and_id_stay_apart() -> None:
    whole = [{"function": {"name": name, "arguments": "{}"}} for name in ("add", "sub")]
    assert [name for _, name, _ in calls(*whole)] == ["add", "sub"]


def test_calls_that_share_an_index_stay_apart_with_their_arguments() -> None:
    found = calls(
        {"index": 0, "id": "x", "function": {"name": "add", "arguments": "{}"}},
        {"index": 0, "id": "y", "function": {"name": "sub", "arguments": "{"}},
        {"index": 0, "function": {"arguments": '"a": 1}'}},
    )
    assert found == [("x", "add", "{}"), ("y", "sub", '{"a": 1}')]


@pytest.mark.parametrize(
    "deltas",
    [
        [{"name": "ad"}, {"name": "d", "arguments": "{}"}],
        [{"name": "add", "arguments": "{"}, {"name": "add", "arguments": "}"}],
        [{"name": "add", "arguments": {}}],
    ],
    ids=["in pieces", "repeated", "an object"],
)
def test_a_call_comes_whole_however_it_is_sent(deltas: Sequence[Mapping[str, object]]) -> None:
    assert calls(*({"index": 0, "id": "x", "function": each} for each in deltas)) == [("x", "add", "{}")]


def test_an_id_that_changes_within_a_call_makes_no_second_one() -> None:
    first = {"index": 0, "id": "a", "function": {"name": "add", "arguments": "{"}}
    assert calls(first, {"index": 0, "id": "b", "function": {"arguments": "}"}}) == [("a", "add", "{}")]


def test_calls_without_a_name_are_left_out() -> None:
    assert calls({"index": 0, "function": None}, {"index": 1, "id": "x", "function": {"arguments": "{}"}}) == []


def test_an_answer_with_calls_without_end_is_given_up() -> None:
    many = [{"index": number, "function": {"name": "x"}} for number in range(MAX_PARTS + 1)]
    with pytest.raises(ValueError, match="more than"):
        answered(delta(tool_calls=many))


def test_an_answer_that_never_stops_changing_its_mind_is_given_up() -> None:
    both = [delta(reasoning="hm"), delta(content="hi")]
    with pytest.raises(ValueError, match="more than"):
        answered(*(both * MAX_PARTS))


@pytest.mark.parametrize("field", ["id", "name"])
def test_of_a_call_whose_id_or_name_grows_for_ever_only_the_beginning_is_kept(field: str) -> None:
    each = {"id": "x" * (MAX_NAME + 1)} if field == "id" else {"function": {"name": "x" * (MAX_NAME // 2 + 1)}}
    other = {"function": {"name": "y" * (MAX_NAME // 2 + 1)}}
    (part,) = answered(delta(tool_calls=[{"index": 0, **each}, {"index": 0, **other}]), STOP).content()
    assert isinstance(part, ToolCallPart)
    assert len(part.call_id if field == "id" else part.name) == MAX_NAME


def test_a_delta_costs_the_same_however_many_came_before() -> None:
    many = [{"function": {"name": "add", "arguments": ""}}] * 200_000
    answer = answered(delta(tool_calls=many), STOP)  # would take minutes if each looked at all earlier ones
    assert len(answer.content()) == 1


def test_comments_between_events_are_no_part_of_one() -> None:
    lines = EventLines()
    for _ in range(MAX_EVENT_BYTES // 2_500 + 100):
        assert lines.feed(b": still at work\n\n" * 200) == []
    assert lines.feed(b"data: {}\n\n") == [b"{}"]


def test_a_stream_without_end_is_given_up() -> None:
    lines, piece = EventLines(), b"data: {}\n\n" * 100_000
    with pytest.raises(ValueError, match="larger than"):
        for _ in range(MAX_STREAM_BYTES // len(piece) + 1):
            lines.feed(piece)


def test_lines_may_end_with_a_carriage_return_alone() -> None:
    assert EventLines().feed(b"data: {}\r\rdata: []\r\r") == [b"{}", b"[]"]


@pytest.mark.parametrize("dialect", [ChatDialect, AnthropicDialect])
def test_arguments_nested_deeply_do_not_lose_their_call(dialect: type[ChatDialect | AnthropicDialect]) -> None:
    for depth in range(200, 1_200, 7):
        arguments = '{"a":' + "[" * depth + "]" * depth + "}"
        conversation = Conversation(dialect("fake"))
        entries = [
            UserMessage(message_id="u", content=text_content("hi")),
            AssistantMessage(
                message_id="a", content=(ToolCallPart(call_id="x", name="add", arguments=arguments),), saw=1
            ),
            ToolResult(
                message_id="r",
                call_seq=2,
                call_index=0,
                tool="add",
                tool_call_id="x",
                content=text_content("ok"),
                is_error=False,
            ),
        ]
        first = conversation.messages(entries)
        assert first == conversation.messages(entries)
        assert first.count(b'"x"') == 2
