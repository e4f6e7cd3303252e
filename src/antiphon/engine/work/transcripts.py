"""Keeps folds in memory between runs, so that a long session is not read from the start for every turn."""

from collections import OrderedDict
from typing import Final

from antiphon.domain.ids import SessionId
from antiphon.domain.transcript import Transcript

MAX_BYTES: Final = 64 * 1024 * 1024
"""What all of them may take together."""


class Transcripts:
    """The most recently used ones. A transcript has one user at a time: it is taken out and put back."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[SessionId, tuple[Transcript, int]] = OrderedDict()
        self._bytes = 0

    def take(self, session_id: SessionId) -> Transcript | None:
        transcript, size = self._kept.pop(session_id, (None, 0))
        self._bytes -= size
        return transcript

    def put_back(self, session_id: SessionId, transcript: Transcript) -> None:
        """Keeps it for the session's next run, which continues reading after its last event."""
        self.take(session_id)
        size = transcript.size
        self._kept[session_id] = transcript, size
        self._bytes += size
        while self._bytes > self._max_bytes:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._bytes -= dropped
