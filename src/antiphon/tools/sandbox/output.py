"""What is kept of a stream that may never end: its beginning and its end."""

MAX_OUTPUT_BYTES = 64 * 1024
"""Kept of each stream."""


class Output:
    """Takes in any number of bytes and keeps few."""

    def __init__(self, max_bytes: int = MAX_OUTPUT_BYTES) -> None:
        self.size = 0
        """Of all that came."""
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
        """What was kept, with a note in place of the rest."""
        if not self.is_cut:
            return (self._head + self._tail).decode("utf-8", "replace")
        tail = self._tail[-self._half :]
        left_out = self.size - len(self._head) - len(tail)
        head, end = self._head.decode("utf-8", "replace"), tail.decode("utf-8", "replace")
        return f"{head}\n[… {left_out} bytes are left out …]\n{end}"
