"""Limits the size of messages from MCP servers: a larger message is dropped as it arrives, and its call fails.

The same happens to a message with so many values that reading it would block everything else. An answer made here
replaces the message, so that the call fails at once and the connection continues. Others pass as `envelopes` makes
them readable.
"""

import codecs
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from antiphon.incoming import holds_more_than
from antiphon.mcp.envelopes import answer_among, error_answer, readable, readable_event

if TYPE_CHECKING:
    import httpx2
    from _typeshed import ReadableBuffer

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
ENCODING = "antiphon-bounded-lines"
"""The name of this codec in Python: UTF-8 whose decoder drops lines that are too long, and mends others."""
MAX_MESSAGE_VALUES = 50_000
"""Numbers, texts, lists, objects and names. A block of content with one text has three and takes 20 µs."""
TOO_LARGE = f"The answer is larger than {MAX_MESSAGE_BYTES // 1024**2} MiB, which is the limit. Ask for less."
TOO_MANY = f"The answer holds more than {MAX_MESSAGE_VALUES} values, which is the limit. Ask for less."
_NEAR = 1024
"""Bytes at each end of a message that are searched for its id."""


class BoundedMessages:
    """Holds bytes back until their message is complete."""

    def __init__(self, separator: bytes | None, before: bytes = b"") -> None:
        """`separator` ends each message if there are several; `before` precedes each answer that is made here."""
        self._separator = separator
        self._before = before
        self._held: list[bytes] = []
        self._size = 0
        self._is_dropping = False
        self._head = self._tail = b""

    def take(self, data: bytes) -> bytes:
        """The bytes that can be passed on now."""
        if self._separator is None:
            self._hold(data)
            return b""
        passed: list[bytes] = []
        *ends, rest = data.split(self._separator)
        for end in ends:
            self._hold(end)
            passed.append(self._finish() + self._separator)
        self._hold(rest)
        return b"".join(passed)

    @property
    def held(self) -> int:
        """Bytes of the incomplete message."""
        return sum(map(len, self._held))

    def end(self) -> bytes:
        """The last message, which has no separator."""
        return self._finish()

    def _hold(self, data: bytes) -> None:
        self._size += len(data)
        self._tail = (self._tail + data[-_NEAR:])[-_NEAR:]
        if len(self._head) < _NEAR:
            self._head += data[:_NEAR]
        if self._size > MAX_MESSAGE_BYTES:
            self._is_dropping = True
            self._held.clear()
        elif data:
            self._held.append(data)

    def _finish(self) -> bytes:
        whole = b"".join(self._held)
        if self._is_dropping:
            whole = self._refused(TOO_LARGE)
        elif holds_more_than(MAX_MESSAGE_VALUES, whole):
            whole = self._refused(TOO_MANY)
        elif self._before:
            whole = b"\n\n".join(readable_event(whole))
        elif self._separator is None:
            whole = answer_among(readable(whole))
        else:
            whole = self._separator.join(readable(whole))
        self._held, self._size, self._is_dropping, self._head, self._tail = [], 0, False, b"", b""
        return whole

    def _refused(self, reason: str) -> bytes:
        return self._before + error_answer(self._head, self._tail, reason)


class _LineDecoder(codecs.IncrementalDecoder):
    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._messages = BoundedMessages(b"\n")

    def decode(self, input: "ReadableBuffer", final: bool = False) -> str:
        data = self._messages.take(bytes(input)) + (self._messages.end() if final else b"")
        return data.decode("utf-8", "replace")


def register() -> None:
    """Registers `ENCODING` in Python; may be called twice."""
    codecs.register(_find)


def _find(name: str) -> codecs.CodecInfo | None:
    if name.replace("_", "-") != ENCODING:
        return None
    utf8 = codecs.lookup("utf-8")
    return codecs.CodecInfo(utf8.encode, utf8.decode, incrementaldecoder=_LineDecoder, name=ENCODING)


def _without_last_break(data: bytes) -> tuple[bytes, bytes]:
    """The bytes to read now, and a final line break that the next bytes could turn into an empty line."""
    if _with_plain_breaks(data[-4:]).endswith(b"\n\n") and not data.endswith(b"\r"):
        return data, b""
    rest = data.rstrip(b"\r\n")
    return rest, data[len(rest) :]


def _with_plain_breaks(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


async def bound_response(response: "httpx2.Response") -> None:
    """Limits how much of the response is read. A response hook of the HTTP client."""
    import httpx2

    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("the server compresses its answers, though it was not asked to")
    is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
    messages = BoundedMessages(b"\n\n", b"event: message\ndata: ") if is_stream else BoundedMessages(None)
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            breaks = b""
            async for data in stream:
                if is_stream:
                    rest, breaks = _without_last_break(breaks + data)
                    data = _with_plain_breaks(rest)
                if passed := messages.take(data):
                    yield passed
            if last := messages.take(_with_plain_breaks(breaks)) + messages.end():
                yield last

        async def aclose(self) -> None:
            await stream.aclose()

    response.stream = Bounded()
