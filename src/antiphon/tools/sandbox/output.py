"""Keeps the beginning and the end of a stream that may never end."""

import codecs

MAX_OUTPUT_BYTES = 64 * 1024
"""Kept of each stream."""


class Output:
    """Takes any number of bytes and keeps few."""

    def __init__(self, max_bytes: int = MAX_OUTPUT_BYTES) -> None:
        self.size = 0
        """Bytes received in total."""
        self._half = max_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        self.size += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    @property
    def is_cut(self) -> bool:
        return self.size > 2 * self._half

    def text(self) -> str:
        """The kept text, with a note in place of the rest."""
        if not self.is_cut:
            return (self._head + self._tail).decode("utf-8", "replace")
        tail = self._tail[-self._half :]
        left_out = self.size - len(self._head) - len(tail)
        # A character that is cut in two is left out on both sides.
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        head = decoder.decode(self._head)
        begin = next((at for at, byte in enumerate(tail[:4]) if byte & 0xC0 != 0x80), 0)
        left_out += begin + len(decoder.getstate()[0])
        return f"{head}\n[… {left_out} bytes left out …]\n{tail[begin:].decode('utf-8', 'replace')}"
