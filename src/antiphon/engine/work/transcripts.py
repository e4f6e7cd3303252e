"""Keeps folds in memory between runs, so that a long session is not read from the start for every turn."""

from collections import OrderedDict

from antiphon.domain.ids import SessionId
from antiphon.domain.transcript import Transcript

KEPT = 64
MAX_ENTRIES = 2_000


class Transcripts:
    """The most recently used ones. A transcript has one user at a time: it is taken out and put back."""

    def __init__(self) -> None:
        self._kept: OrderedDict[SessionId, Transcript] = OrderedDict()

    def take(self, session_id: SessionId) -> Transcript | None:
        return self._kept.pop(session_id, None)

    def put_back(self, session_id: SessionId, transcript: Transcript) -> None:
        """Keeps it for the session's next run, which continues reading after its last event."""
        if transcript.size > MAX_ENTRIES:
            return
        self._kept[session_id] = transcript
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
