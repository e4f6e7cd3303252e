"""The fence around words that are data: from another session, or of a sub-agent. Contract: events 2."""

import hashlib
import hmac
from dataclasses import dataclass

from antiphon.domain.ids import SessionId

PURPOSE = "fence"
"""Of the home's key, from which the numbers in the marks are made."""
NUMBER_DIGITS = 24


@dataclass(frozen=True, slots=True)
class DataFence:
    """Of one entry of a prompt. Its marks hold a number that nobody knows who writes words for it."""

    number: str

    @property
    def begin(self) -> str:
        return f"<<<DATA {self.number}: it ends only with END OF DATA {self.number}>>>"

    @property
    def end(self) -> str:
        return f"<<<END OF DATA {self.number}>>>"

    def around(self, text: str) -> str:
        """The text as it is, between the marks."""
        return f"{self.begin}\n{text}\n{self.end}"


@dataclass(frozen=True, slots=True)
class DataFences:
    """The fences of an incarnation's prompts; an entry has the same one in every prompt."""

    key: bytes
    """The home's, for this purpose."""
    incarnation: SessionId

    def of(self, seq: int) -> DataFence:
        """The fence of the entry with this place in the log."""
        return self._drawn(str(seq))

    def of_summary(self, text: str) -> DataFence:
        """The fence of a summary, which has no place in the log: it hangs on every word of it."""
        return self._drawn(f"summary {hashlib.sha256(text.encode()).hexdigest()}")

    def _drawn(self, entry: str) -> DataFence:
        drawn = hmac.digest(self.key, f"{entry} {self.incarnation}".encode(), hashlib.sha256)
        return DataFence(drawn.hex()[:NUMBER_DIGITS])
