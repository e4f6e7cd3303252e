"""Messages of servers that are too large are dropped while they come, whichever way they are cut into pieces."""

import codecs
import json

from hypothesis import given
from hypothesis import strategies as st

from antiphon.mcp import bounded
from antiphon.mcp.bounded import ENCODING, MAX_MESSAGE_BYTES, MAX_MESSAGE_VALUES, BoundedMessages

PIECE = 64 * 1024


def line(id: int, size: int, *, id_is_last: bool = False) -> bytes:
    result = f'"result":"{"x" * size}"'
    fields = [result, f'"id":{id}'] if id_is_last else [f'"id":{id}', result]
    return f"{{{','.join(fields)}}}\n".encode()


def decoded(data: bytes, size: int) -> str:
    bounded.register()
    decoder = codecs.getincrementaldecoder(ENCODING)()
    pieces = [decoder.decode(data[at : at + size]) for at in range(0, len(data), size)]
    return "".join(pieces) + decoder.decode(b"", True)


@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))), st.integers(1, 20))
def test_what_is_small_enough_comes_as_it_was_sent(lines: list[str], size: int) -> None:
    data = "\n".join(lines)
    assert decoded(data.encode(), size) == data


def test_an_error_stands_for_a_message_that_is_too_large_and_others_come_as_they_are() -> None:
    data = line(1, 10) + line(2, MAX_MESSAGE_BYTES) + line(3, 20) + line(4, MAX_MESSAGE_BYTES, id_is_last=True)
    found = [json.loads(each) for each in decoded(data, PIECE).splitlines()]
    assert [each["id"] for each in found] == [1, 2, 3, 4]
    assert ["result" in each for each in found] == [True, False, True, False]
    assert all("larger than" in each["error"]["message"] for each in found if "error" in each)


def test_an_error_stands_for_a_message_of_too_many_values() -> None:
    many = b'{"id":1,"result":[' + b"{}," * MAX_MESSAGE_VALUES + b"{}]}\n"
    one = json.dumps({"id": 2, "result": {"text": "[{}, " * 2 * MAX_MESSAGE_VALUES}}).encode() + b"\n"
    first, second = [json.loads(each) for each in decoded(many + one, PIECE).splitlines()]
    assert first["id"] == 1 and "more than 50000 values" in first["error"]["message"]
    assert second["result"]["text"].startswith("[{}, ")


def test_no_more_is_held_than_a_message_may_have() -> None:
    messages = BoundedMessages(b"\n")
    most = 0
    for _ in range(4 * MAX_MESSAGE_BYTES // PIECE):
        assert messages.take(b"x" * PIECE) == b""
        most = max(most, messages.held)
    assert MAX_MESSAGE_BYTES - PIECE <= most <= MAX_MESSAGE_BYTES
