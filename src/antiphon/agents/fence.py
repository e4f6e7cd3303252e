"""The data fence around words of other sessions and of sub-agents. Contract: events 2."""

import hashlib
import hmac

from msgspec import Struct

from antiphon.domain.ids import SessionId

PURPOSE = "fence"
"""The purpose for which the home's key gives the numbers in the marks."""
NUMBER_DIGITS = 24


class DataFence(Struct, frozen=True):
    """The fence of one entry of a prompt. Its marks contain a number that the author of the words cannot know."""

    number: str

    @property
    def begin(self) -> str:
        return f"<<<DATA {self.number}: it ends only with END OF DATA {self.number}>>>"

    @property
    def end(self) -> str:
        return f"<<<END OF DATA {self.number}>>>"

    def around(self, text: str) -> str:
        """The unchanged text between the marks."""
        return f"{self.begin}\n{text}\n{self.end}"


class DataFences(Struct, frozen=True):
    """The fences of an incarnation's prompts; an entry has the same fence in every prompt."""

    key: bytes
    """The home's key for this purpose."""
    incarnation: SessionId

    def of(self, seq: int) -> DataFence:
        """The fence of the entry with this `seq`."""
        return self._drawn(str(seq))

    def of_citation(self, seq: int, number: int) -> DataFence:
        """The fence of what that entry points at; the entry's own may stand around it."""
        return self._drawn(f"citation {number} of {seq}")

    def of_summary(self, text: str) -> DataFence:
        """The fence of a summary, which has no `seq`; it depends on every word of the summary."""
        return self._drawn(f"summary {hashlib.sha256(text.encode()).hexdigest()}")

    def of_memory(self, text: str) -> DataFence:
        """Like `of_summary`, for a part of the memory."""
        return self._drawn(f"memory {hashlib.sha256(text.encode()).hexdigest()}")

    def _drawn(self, entry: str) -> DataFence:
        drawn = hmac.digest(self.key, f"{entry} {self.incarnation}".encode(), hashlib.sha256)
        return DataFence(drawn.hex()[:NUMBER_DIGITS])
