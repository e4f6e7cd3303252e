"""A release: words that an owner lets go where they may not, exactly these, once. Contract: flow 4, 11."""

from msgspec import Struct

from antiphon.domain.message import JsonObject
from antiphon.domain.text import exact


class Release(Struct, frozen=True, kw_only=True):
    """What a call would send, as people are asked about it."""

    whose: str
    """What the words were made of, such as `Private to you`."""
    to: str
    """Who would get them."""
    text: str
    """The exact words."""
    sha256: str
    """Covers the words, their place, everybody who reads there, and both classifications."""
    standing: str | None = None
    """Names the flow whatever the words: whose data, the place, and everybody who reads there. None if it may not be
    allowed always."""

    def data(self) -> JsonObject:
        return {
            "whose": self.whose,
            "to": self.to,
            "text": self.text,
            "sha256": self.sha256,
            "mayStand": self.standing is not None,
        }

    @property
    def question(self) -> str:
        """One sentence for people, before the words."""
        return f"{self.whose} → {self.to}."


class StandingRelease(Struct, frozen=True, kw_only=True):
    """A person's own data that may always go to a place."""

    whose: str
    to: str
    sha256: str
    """As in `Release.standing`."""


def shown_words(text: str) -> str:
    """The words as people decide about them, with what is invisible in them as its escape.

    No two texts are shown alike: a backslash of the words stands twice.
    """
    return exact(text.replace("\\", "\\\\"))
