"""What of a prompt flows to a ceiling, and what calls may carry to tools."""

import pytest
from msgspec.structs import replace

from antiphon.domain.classification import EVERYTHING, PEOPLE, PUBLIC, UNTRUSTED, Classification, Level, join_all
from antiphon.domain.message import AssistantMessage, ToolCallPart, ToolResult, UserMessage, text_content, text_of
from antiphon.domain.transcript import Entry, Input, Step, Summary
from antiphon.policy.flow import WITHHELD, admitted, is_public
from antiphon.policy.sinks import Sinks, clearance_of_tool
from tests.claims import requirement

INTERNAL = Classification(Level.INTERNAL)
SECRET = Classification(Level.CONFIDENTIAL)


def said(seq: int, made_of: Classification) -> Input:
    message = UserMessage(message_id=f"msg-{seq}", content=text_content(f"words {seq}"))
    return Input(seq=seq, message=message, actor="person:x", run_id=None, classification=made_of)


def step(seq: int, made_of: Classification, *results: Classification) -> Step:
    calls = tuple(ToolCallPart(call_id=str(index), name="look", arguments="{}") for index in range(len(results)))
    message = AssistantMessage(message_id=f"msg-{seq}", content=calls, saw=seq - 1)
    outputs = tuple(
        ToolResult(
            message_id=f"msg-{seq}-{index}",
            call_seq=seq,
            call_index=index,
            tool="look",
            tool_call_id=str(index),
            content=text_content(f"result {index}"),
            is_error=True,
        )
        for index in range(len(results))
    )
    return Step(seq=seq, message=message, results=outputs, made_of=made_of, results_made_of=results)


@requirement("flow:2")
def test_entries_above_the_ceiling_are_left_out_and_results_withheld_in_their_place() -> None:
    entries: list[Entry] = [
        Summary(text="long ago", classification=SECRET),
        said(1, INTERNAL),
        said(2, SECRET),
        step(3, INTERNAL, UNTRUSTED, SECRET, INTERNAL),
        step(4, SECRET, PUBLIC),
        said(5, PUBLIC),
    ]
    shown = list(admitted(entries, INTERNAL))
    # What the summary replaced does not come back, and a step goes with its results.
    assert [entry.seq for entry in shown if not isinstance(entry, Summary)] == [1, 3, 5] and len(shown) == 3
    (kept,) = [entry for entry in shown if isinstance(entry, Step)]
    results = [result for result in kept.results if isinstance(result, ToolResult)]
    assert [text_of(result.content) for result in results] == ["result 0", WITHHELD, "result 2"]
    assert [result.is_error for result in results] == [True, False, True]
    assert [result.tool_call_id for result in results] == ["0", "1", "2"]
    assert join_all(entry.classification for entry in shown) == INTERNAL.distrusted()
    assert list(admitted(entries, EVERYTHING)) == entries


@requirement("flow:7")
@pytest.mark.parametrize("level", Level)
def test_a_tool_takes_its_clearance_or_else_what_its_results_are_made_of(level: Level) -> None:
    declared, clearance = Classification(level), Classification(Level.INTERNAL)
    assert clearance_of_tool(declared, None, only_reads=True) == EVERYTHING
    assert clearance_of_tool(declared, None, only_reads=False) == Classification(level, person=PEOPLE)
    anns = replace(declared, person="person:ann")
    assert clearance_of_tool(anns, None, only_reads=False) == anns
    for only_reads in (True, False):
        assert clearance_of_tool(declared, clearance, only_reads=only_reads) == clearance
    assert Sinks().of_commands(declared) == Classification(level, person=PEOPLE)
    assert Sinks(commands=clearance).of_commands(declared) == clearance
    assert is_public(declared) is (level is Level.PUBLIC)
