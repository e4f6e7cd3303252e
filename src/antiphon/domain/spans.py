"""Spans of secrets in a text, and ways to find their ends without reading anything twice."""

import re
from collections.abc import Iterable
from functools import cache
from typing import TypeAlias

Span: TypeAlias = tuple[int, int]
"""From one place in a text up to another, which is excluded."""

MASK = "[redacted]"
LONGEST_VALUE = 8 * 1024
"""Characters of one secret; text beyond belongs to another."""
LOOKAHEAD = 256
"""Characters after a place that show whether a secret's name or prefix begins there."""


_MASKED = re.compile(re.escape(MASK))


@cache
def _run_of(characters: str) -> re.Pattern[str]:
    return re.compile(f"{characters}*+", re.ASCII)


class CharacterRuns:
    """The ends of runs of certain characters. At ascending places, it reads each character once."""

    def __init__(self, text: str, characters: str) -> None:
        """`characters` is a character class of an expression, with its brackets."""
        self._text = text
        self._run = _run_of(characters)
        self._from = self._to = 0
        self._is_closed = False

    def end(self, start: int) -> int:
        """The end of the run that continues at `start`, at most `LONGEST_VALUE` characters further."""
        limit = min(start + LONGEST_VALUE, len(self._text))
        if not self._from <= start <= self._to:
            self._from = self._to = start
            self._is_closed = False
        if self._to < limit and not self._is_closed:
            found = self._run.match(self._text, self._to, limit)
            assert found is not None
            self._to = found.end()
            self._is_closed = self._to < limit
        return min(self._to, limit)


class Occurrences:
    """The next match of an expression. At ascending places, it reads each character once; it may begin anew."""

    def __init__(self, text: str, pattern: re.Pattern[str]) -> None:
        self._text = text
        self._pattern = pattern
        self._asked = 0
        self._read_to = 0
        """No occurrence begins between the last requested place and this one, except `_found`."""
        self._found: Span | None = None

    def next(self, start: int, limit: int) -> Span | None:
        """The first that begins at `start` or later and ends at `limit` or before."""
        if start < self._asked:
            self._found, self._read_to = None, 0
        self._asked = start
        if self._found is not None and self._found[0] >= start:
            return self._found if self._found[1] <= limit else None
        found = self._pattern.search(self._text, max(start, self._read_to), limit)
        self._found = found.span() if found is not None else None
        if found is None:
            self._read_to = max(start, self._read_to, limit - LOOKAHEAD)
        return self._found


class Masks(Occurrences):
    """Places of a text that are already redacted."""

    def __init__(self, text: str) -> None:
        super().__init__(text, _MASKED)

    def are_in(self, span: Span) -> bool:
        """Whether a mask is inside the span or directly before it; the span then stays unchanged."""
        start, end = span
        return self._text.endswith(MASK, max(0, start - len(MASK)), start) or self.next(start, end) is not None


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same places as spans that neither touch nor overlap, ascending."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined
