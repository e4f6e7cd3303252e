"""The part of a text around what was searched for. Contract: search 1."""

import re
from collections.abc import Collection
from unicodedata import category

from antiphon.domain.words import words_of

MAX_CHARACTERS = 300
BEFORE = 80
"""Characters that lead up to the hit, where there are so many."""
CUT = "…"

_RUNS = re.compile(r"\S+")


def snippet(text: str, words: Collection[str]) -> str:
    """At most 300 characters around the first of the words, on one line; the beginning if none is found."""
    line = " ".join(text.split())
    if len(line) <= MAX_CHARACTERS:
        return line
    start = max(0, first_hit(line, words) - BEFORE)
    start = min(start, len(line) - MAX_CHARACTERS + len(CUT))
    if start > 0:
        start = _whole(line, start)
    room = MAX_CHARACTERS - (len(CUT) if start > 0 else 0)
    end = len(line)
    if end - start > room:
        end = _whole_end(line, start, start + room - len(CUT))
    return (CUT if start > 0 else "") + line[start:end].strip() + (CUT if end < len(line) else "")


def first_hit(text: str, words: Collection[str]) -> int:
    """Where the first of the words begins, or the run of characters that holds it; 0 if none is there."""
    wanted = frozenset(words)
    known: dict[str, bool] = {}
    for run in _RUNS.finditer(text):
        is_hit = known.get(run[0])
        if is_hit is None:
            is_hit = known[run[0]] = not wanted.isdisjoint(words_of(run[0]))
        if is_hit:
            return run.start() + _within(run[0], wanted)
    return 0


def _within(run: str, wanted: frozenset[str]) -> int:
    """About where in a run the first of the words ends: the shortest beginning of the run that has one."""
    if len(run) <= BEFORE:
        return 0
    low, high = 1, len(run)
    while low < high:
        middle = (low + high) // 2
        if wanted.isdisjoint(words_of(run[:middle])):
            low = middle + 1
        else:
            high = middle
    return max(0, low - 1)


def _whole(text: str, start: int) -> int:
    """The first place from `start` on where no character is cut from its marks."""
    while start < len(text) - 1 and category(text[start])[0] == "M":
        start += 1
    return start


def _whole_end(text: str, start: int, end: int) -> int:
    while end > start + 1 and category(text[end])[0] == "M":
        end -= 1
    return end
