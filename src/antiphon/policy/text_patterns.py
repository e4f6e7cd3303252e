"""What stands in a text, by literal words or with `*` for any letters, in linear time. Case does not matter.

A pattern also says which stretches of the text it matched, so that these can be taken out.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol, Self

from antiphon.domain.spans import Span


class TextPattern(Protocol):
    """Both take the text as `folded` returns it."""

    def matches(self, text: str) -> bool: ...

    def stretches(self, text: str) -> Iterator[Span]: ...


def folded(text: str) -> str:
    """The text in small letters, with as many characters, so that places in it are places in the text."""
    if text.isascii():
        return text.lower()
    small = text.lower()
    if len(small) != len(text):
        small = "".join(each if len(each.lower()) != 1 else each.lower() for each in text)
    return small.replace("ς", "σ")


class Literal(NamedTuple):
    """These words anywhere."""

    words: str

    def matches(self, text: str) -> bool:
        return self.words in text

    def stretches(self, text: str) -> Iterator[Span]:
        start = text.find(self.words)
        while start >= 0:
            end = start + len(self.words)
            yield start, end
            start = text.find(self.words, end)


class Wildcard(NamedTuple):
    """Words in this order, with anything between them. The whole text must match.

    A stretch reaches from the first of the words to the last; what a `*` at either end stands for is no part of it.
    """

    words: tuple[str, ...]
    is_open_before: bool
    is_open_after: bool

    @classmethod
    def of(cls, pattern: str) -> Self:
        parts = tuple(part for part in pattern.split("*") if part)
        return cls(parts, pattern.startswith("*"), pattern.endswith("*"))

    def matches(self, text: str) -> bool:
        return next(self.stretches(text), None) is not None

    def stretches(self, text: str) -> Iterator[Span]:
        if not self.words:
            yield 0, len(text)
            return
        place = 0
        while (found := self._next(text, place)) is not None:
            yield found
            place = found[1]
            if not self.is_open_before or not self.is_open_after:
                return

    def _next(self, text: str, place: int) -> Span | None:
        """The first stretch from that place on."""
        first, last = self.words[0], self.words[-1]
        if not self.is_open_after and not text.endswith(last):
            return None
        start = text.find(first, place) if self.is_open_before else (0 if text.startswith(first) else -1)
        if start < 0:
            return None
        limit = len(text) if self.is_open_after else len(text) - len(last)
        if len(self.words) == 1:
            if self.is_open_after:
                return start, start + len(first)
            if not self.is_open_before:
                return (0, len(text)) if text == first else None
            return limit, len(text)
        end = start + len(first)
        for word in self.words[1:] if self.is_open_after else self.words[1:-1]:
            found = text.find(word, end, limit if not self.is_open_after else len(text))
            if found < 0:
                return None
            end = found + len(word)
        if self.is_open_after:
            return start, end
        return (start, len(text)) if end <= limit else None
