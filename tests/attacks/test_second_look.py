"""A second look at what was built against attacks: what a stranger's server or message may still do."""

import json
import time
from datetime import UTC, datetime

import pytest

from antiphon.agents.model import ModelErrorKind as Kind
from antiphon.agents.providers.failures import MAX_WORDS, Refusal, classify

NOW = datetime(2026, 11, 29, tzinfo=UTC)
AT_ONCE = 1.0
"""Seconds; what is slow here takes minutes."""


def refused(status: int, **error: object) -> Kind:
    return classify(Refusal(status=status, body=json.dumps({"error": error}).encode()), NOW).kind


@pytest.mark.parametrize("code", ["²²²", "٤٠٠", "4⃣0"])
def test_a_code_of_odd_digits_is_no_number(code: str) -> None:
    assert refused(400, message="no", code=code) is Kind.REFUSED


@pytest.mark.parametrize(
    "said", ["limit , requested , ", "limit: _ requested: 5", "limit: ,,, used: 1, requested: ___"]
)
def test_a_limit_without_a_number_is_none(said: str) -> None:
    assert refused(400, message=said) is Kind.REFUSED


@pytest.mark.parametrize("piece", ["1,", "1,1 ", "limit 1,", "exceed ", "<script ", "context ", "image only "])
def test_words_of_any_kind_are_read_at_once(piece: str) -> None:
    begun = time.process_time()
    refused(400, message=piece * (MAX_WORDS // len(piece)))
    assert time.process_time() - begun < AT_ONCE


@pytest.mark.parametrize("status", [500, 502, 503, 504])
@pytest.mark.parametrize(
    "said",
    [
        "context deadline exceeded",
        "rpc error: code = DeadlineExceeded desc = context deadline exceeded",
        "request canceled (Client.Timeout exceeded while awaiting headers) (context deadline exceeded)",
        "upstream request failed: context canceled",
    ],
)
def test_a_server_that_ran_out_of_time_shortens_no_conversation(status: int, said: str) -> None:
    assert refused(status, message=said) is Kind.SERVER


@pytest.mark.parametrize("parameter", ["tools[0].function.description", "messages[3].tool_calls[0].id"])
def test_a_long_id_or_description_shortens_no_conversation(parameter: str) -> None:
    said = f"Invalid '{parameter}': string too long. Expected a string with maximum length 40."
    assert refused(400, message=said, code="string_above_max_length", param=parameter) is Kind.REFUSED


def test_a_long_text_of_the_conversation_still_does() -> None:
    said = "Invalid 'messages[1].content': string too long. Expected a string with maximum length 10485760."
    kind = refused(400, message=said, code="string_above_max_length", param="messages[1].content")
    assert kind is Kind.CONTEXT_TOO_LONG


@pytest.mark.parametrize("said", ["Tool name does not fit pattern ^[a-z]+$", "input does not fit the schema"])
def test_what_fits_no_pattern_is_not_too_long(said: str) -> None:
    assert refused(400, message=said) is Kind.REFUSED
