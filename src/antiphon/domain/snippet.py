"""The part of a text around a hit. Contract: search 1."""

import re
from collections.abc import Collection
from unicodedata import category

from antiphon.domain.redaction import redact_beginning, redacted_pieces
from antiphon.domain.words import words_of

MAX_CHARACTERS = 300
BEFORE = 80
"""Characters before the hit, if the text has that many."""
CUT = "…"
NEAR = 4 * 1024
"""Characters around the hit from which the snippet is made: many of them may be blanks."""

_RUNS = re.compile(r"\S{1,16384}")


def redacted_snippet(text: str, words: Collection[str]) -> str:
    """The snippet of the redacted text; reads no further than the hit."""
    pieces = (piece.text for piece in redacted_pieces(text))
    before, piece = "", next(pieces, "")
    beginning = None
    while True:
        after = next(pieces, "")
        around = before[-NEAR:] + piece + after[:NEAR]
        hit = _find_hit(around, words)
        if hit is not None:
            return _around(around, hit, is_beginning=not before, is_end=len(after) <= NEAR)
        if beginning is None:
            beginning = _around(around, 0, is_beginning=True, is_end=not after)
        if not after:
            return beginning
        before, piece = piece, after


def snippet(text: str, words: Collection[str]) -> str:
    """At most 300 characters around the first of the words, on one line; the beginning if none is found."""
    return _around(text, _find_hit(text, words) or 0, is_beginning=True, is_end=True)


def snippet_at(text: str, hit: int) -> str:
    """At most 300 characters around that place of the text, on one line."""
    return _around(text, hit, is_beginning=True, is_end=True)


def redacted_beginning(text: str) -> str:
    """At most 300 characters of the redacted text, on one line; reads about as many as it may show."""
    shown = redact_beginning(text, NEAR)
    return _around(shown.text, 0, is_beginning=True, is_end=shown.is_whole)


def _around(text: str, hit: int, *, is_beginning: bool, is_end: bool) -> str:
    first, last = max(0, hit - NEAR), min(len(text), hit + NEAR)
    lead = " ".join(text[first:hit].split()) + (" " if text[first:hit][-1:].isspace() else "")
    lead = "" if lead == " " else lead
    line = (lead + " ".join(text[hit:last].split())).strip()
    is_beginning, is_end = is_beginning and first == 0, is_end and last == len(text)
    if len(line) <= MAX_CHARACTERS - len(CUT) * ((not is_beginning) + (not is_end)):
        return ("" if is_beginning else CUT) + line + ("" if is_end else CUT)
    start = max(0, len(lead) - BEFORE)
    start = max(0, min(start, len(line) - MAX_CHARACTERS + len(CUT)))
    if start > 0:
        start = _whole(line, start)
    is_cut = start > 0 or not is_beginning
    room = MAX_CHARACTERS - (len(CUT) if is_cut else 0)
    end = len(line)
    if end - start > room - (0 if is_end else len(CUT)):
        end = _whole_end(line, start, start + room - len(CUT))
    is_cut_behind = end < len(line) or not is_end
    return (CUT if is_cut else "") + line[start:end].strip() + (CUT if is_cut_behind else "")


def _find_hit(text: str, words: Collection[str]) -> int | None:
    """The start of the first of the words, or the approximate place in a run of characters that contains it."""
    wanted = frozenset(words)
    known: dict[str, bool] = {}
    start = _first_place(text, wanted)
    if start is None:
        return None
    for run in _RUNS.finditer(text, start):
        is_hit = known.get(run[0])
        if is_hit is None:
            is_hit = known[run[0]] = not wanted.isdisjoint(words_of(run[0]))
        if is_hit:
            return run.start() + _within(run[0], wanted)
    return None


def _first_place(text: str, wanted: frozenset[str]) -> int | None:
    """The start of a run before which none of the words is; None if there is none. Words of ASCII stand in the text."""
    if not text.isascii():
        return 0
    small = text.lower()
    places = [place for place in map(small.find, wanted) if place >= 0]
    if not places:
        return None
    before = small[: min(places)]
    is_within = before and not before[-1].isspace()
    return len(before) - (len(before.rsplit(None, 1)[-1]) if is_within else 0)


def _within(run: str, wanted: frozenset[str]) -> int:
    """Roughly the end of the first of the words in a run: the shortest beginning of the run that contains one."""
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
    """The first place from `start` on at which a cut separates no character from its marks."""
    while start < len(text) - 1 and category(text[start])[0] == "M":
        start += 1
    return start


def _whole_end(text: str, start: int, end: int) -> int:
    while end > start + 1 and category(text[end])[0] == "M":
        end -= 1
    return end
