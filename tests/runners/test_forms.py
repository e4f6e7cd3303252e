"""Prompts in the forms that frameworks take."""

import json

import pytest

from antiphon.agents.model import Prompt
from antiphon.agents.runners.forms import MessageForm, messages_of
from antiphon.domain.message import AssistantMessage, ThinkingPart, ToolCallPart, ToolResult, UserMessage, text_content


def prompt() -> Prompt:
    """Two turns, in each of which the same call was made under the same id."""
    call = ToolCallPart(call_id="c1", name="refund", arguments="{}")
    result = ToolResult(
        message_id="r", call_seq=2, call_index=0, tool="refund", tool_call_id="c1", content=text_content("ok")
    )
    question = UserMessage(message_id="u", content=text_content("refund"))
    answer = AssistantMessage(message_id="a", content=(ThinkingPart(text="hm"), call))
    return Prompt(instructions="Be brief.", entries=[question, answer, result, question, answer, result])


@pytest.mark.parametrize("form", ["openai", "responses", "parts"])
def test_calls_have_ids_of_their_own_in_the_whole_conversation_and_results_name_them(form: MessageForm) -> None:
    written = json.dumps(messages_of(prompt(), form))
    assert written.count('"c1"') == written.count('"c1_2"') == 2
    assert "hm" not in written
