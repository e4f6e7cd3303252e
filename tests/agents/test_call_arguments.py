"""Arguments in one form: what people read, what is stored and what runs say the same."""

import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.agents.call_arguments import read_call_arguments
from antiphon.domain.errors import Invalid
from tests.claims import requirement

BLANKS = st.text(alphabet=" \t\n\r", max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=6), each, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=6), VALUES, max_size=5)


def loosened(value: object, chance: random.Random, *, is_ascii: bool) -> str:
    """JSON of the value, with blanks wherever they mean nothing."""
    tokens = re.findall(
        r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\[\]{}:,"]+', json.dumps(value, ensure_ascii=is_ascii), re.DOTALL
    )
    gaps = (chance.choice(["", " ", "\n", "\t \r\n", " " * 40]) for _ in range(len(tokens) + 1))
    return "".join(
        f"{gap}{token.strip() if token.strip() else ''}" for gap, token in zip(gaps, [*tokens, ""], strict=True)
    )


@requirement("approvals:1")
def test_the_canonical_text_is_the_same_value_without_blanks(*, is_soak: bool) -> None:
    @settings(max_examples=10_000 if is_soak else 300, deadline=None)
    @given(OBJECTS, st.randoms(use_true_random=False), st.booleans())
    def holds(value: dict[str, object], chance: random.Random, is_ascii: bool) -> None:
        written = loosened(value, chance, is_ascii=is_ascii)
        found = read_call_arguments(written)
        assert found.values == json.loads(written) == json.loads(found.text) == value
        assert read_call_arguments(found.text).text == found.text
        assert not re.search(r"\s", re.sub(r'"(?:[^"\\]|\\.)*"', "", found.text, flags=re.DOTALL))
        strings = re.findall(r'"(?:[^"\\]|\\.)*"', written, re.DOTALL)
        assert re.findall(r'"(?:[^"\\]|\\.)*"', found.text, re.DOTALL) == strings, "strings stay byte for byte"

    holds()


@requirement("approvals:1")
@pytest.mark.parametrize(
    "written",
    [
        '{"command": "echo hello", "command": "rm -rf /"}',
        '{"command":"echo", %s "command":"rm"}' % (" " * 2600),
        '{"a": {"b": [{"c": 1, "c": 1}]}}',
        '{"command": 1, "c\\u006fmmand": 2}',
        '[{"a": 1}]',
        '"text"',
        "{",
        '{"a": 1} {"a": 2}',
        '{"a": 1',
        "{'a': 1}",
        '{"a": "\n"}',
        "[" * 100_000,
    ],
    ids=lambda written: written[:30],
)
def test_what_two_readers_could_read_differently_is_refused(written: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_call_arguments(written)
    assert refused.value.code == "invalid_arguments" and len(refused.value.message) < 300


def test_no_arguments_are_an_empty_object() -> None:
    assert read_call_arguments("").text == read_call_arguments(" {\n} ").text == "{}"
    assert (
        read_call_arguments('{"a": 1e2, "b": 0.10, "c": "  x\\u200b "}').text == '{"a":1e2,"b":0.10,"c":"  x\\u200b "}'
    )
