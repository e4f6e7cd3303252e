"""Lines of a harness come whole, however they are cut, and none is held beyond the limit."""

import json
from typing import cast

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.acp.errors import HarnessError
from antiphon.acp.framing import MAX_LINE_BYTES, MessageLines, RpcAnswer, RpcCall, line_of, message_of

PIECE = 64 * 1024


class Pieces(anyio.abc.ByteReceiveStream):
    """Gives the data in pieces of a size, several times over."""

    def __init__(self, data: bytes, size: int, *, times: int = 1) -> None:
        self._pieces = [data[at : at + size] for at in range(0, len(data), size)]
        self._most = times * len(self._pieces)
        self.given = 0

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self.given >= self._most:
            raise anyio.EndOfStream
        self.given += 1
        return self._pieces[(self.given - 1) % len(self._pieces)]

    async def aclose(self) -> None:
        pass


async def lines_of(data: bytes, size: int) -> list[bytes]:
    lines, found = MessageLines(Pieces(data, size)), list[bytes]()
    while (line := await lines.next()) is not None:
        found.append(line)
    return found


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))), st.integers(1, 20))
def test_what_is_sent_comes_as_it_was_sent(texts: list[str], size: int) -> None:
    data = b"".join(line_of({"method": "said", "params": {"text": text}}) for text in texts)
    found = [message_of(line) for line in anyio.run(lines_of, data + b"\n \r\n", size)]
    assert [call.params for call in found if isinstance(call, RpcCall)] == [{"text": text} for text in texts]


def test_what_stands_behind_the_last_line_break_is_no_line() -> None:
    assert anyio.run(lines_of, b'{"a": 1}\r\n\n{"b"', 3) == [b'{"a": 1}']


async def too_long(pieces: Pieces) -> None:
    with pytest.raises(HarnessError, match="more than 8 MiB"):
        await MessageLines(pieces).next()


def test_no_more_of_a_line_is_read_than_the_limit() -> None:
    pieces = Pieces(b"x" * PIECE, PIECE, times=4 * MAX_LINE_BYTES // PIECE)
    anyio.run(too_long, pieces)
    assert pieces.given * PIECE <= MAX_LINE_BYTES + PIECE
    anyio.run(too_long, Pieces(b"x" * (MAX_LINE_BYTES + 1) + b"\n", 2 * MAX_LINE_BYTES))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "code", "message", "x"]), inner
            )
        ),
    )
)
def test_any_json_is_a_message_or_a_broken_protocol(value: object) -> None:
    for found in (
        value,
        {"jsonrpc": "2.0", "it": value},
        cast(object, {"jsonrpc": "2.0"} | value if isinstance(value, dict) else 0),
    ):
        try:
            message = message_of(json.dumps(found).encode())
        except HarnessError:
            continue
        assert isinstance(message, RpcCall | RpcAnswer)
