"""Reads a stream of server-sent events (`text/event-stream`), or what a server sends in its place, as bytes arrive."""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from antiphon.agents.providers.dialect import AnswerTooLarge

MAX_EVENT_BYTES: Final = 8 * 1024 * 1024
MAX_STREAM_BYTES: Final = 64 * 1024 * 1024


class BodyKind(Enum):
    """What a body is, as its first character tells, whatever its type was said to be."""

    UNKNOWN = "unknown"
    """Only blanks came, with which some servers keep a connection open."""
    EVENTS = "events"
    WHOLE = "whole"
    """One JSON value, from a server that does not stream."""
    PAGE = "page"
    """A web page."""


class EventLines:
    """Collects bytes, however they are split, and returns the data of each complete event.

    Fields other than `data` are left out: the providers repeat the event's name inside its data.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self.kind = BodyKind.UNKNOWN
        self._rest = bytearray()
        """The start of a line that has no end yet."""
        self._data: list[bytes] = []
        """The data lines of an event that has no end yet."""
        self._size = 0
        """Bytes since the last complete event, about."""
        self._all = 0
        """Bytes of the whole stream."""

    def feed(self, piece: bytes) -> Sequence[bytes]:
        """The data of all events that this piece completes, in order.

        Lines end with LF, CRLF or CR. Raises `AnswerTooLarge` if an event or the stream is too large.
        """
        self._size += len(piece)
        self._all += len(piece)
        if self._size > self._max_event_bytes or self._all > MAX_STREAM_BYTES:
            raise AnswerTooLarge(
                f"event is larger than {self._max_event_bytes} bytes, or stream than {MAX_STREAM_BYTES}"
            )
        if self.kind is not BodyKind.EVENTS:
            begun = self._begin(piece)
            if begun is None:
                return ()
            piece = begun
        if b"\r" in piece:
            # A CRLF in two pieces becomes an empty line more, after which an event of one line is complete as well.
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._rest += piece
        if b"\n" not in piece:
            return ()
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        events: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].strip())
            elif not line.strip():
                events.extend(self._complete())
        if events or not self._data:
            self._size = len(rest)
        return events

    def _begin(self, piece: bytes) -> bytes | None:
        """Learns from the first character what the body is; returns the piece from there on if it is of events."""
        if self.kind is BodyKind.UNKNOWN:
            piece = piece.removeprefix(b"\xef\xbb\xbf").lstrip()
            first = piece[:1]
            if not first:
                self._size = 0
                return None
            self.kind = BodyKind.WHOLE if first in b"{[" else BodyKind.PAGE if first == b"<" else BodyKind.EVENTS
            if self.kind is BodyKind.EVENTS:
                return piece
        self._rest += piece
        return None

    def end(self) -> Sequence[bytes]:
        """The data of an event whose blank line is missing, as some servers leave it out at the end; a whole body."""
        if self.kind is not BodyKind.EVENTS:
            return [bytes(self._rest)] if self.kind is BodyKind.WHOLE else ()
        return [*self.feed(b"\n"), *self._complete()]

    def _complete(self) -> Sequence[bytes]:
        if not self._data:
            return ()
        data = b"\n".join(self._data)
        self._data.clear()
        return (data,)
