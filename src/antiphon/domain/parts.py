"""A text cut into the parts that a channel can carry. Contract: channels 1.

The same text and form always give the same parts, so that a restart goes on after the last part that was sent.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator

from msgspec import Struct

from antiphon.domain.channel_form import ChannelForm, LengthUnit
from antiphon.domain.code_blocks import CodeBlock, code_blocks
from antiphon.domain.own_text import OwnText, part_of
from antiphon.domain.tables import with_tables_drawn

SHORTEST = 64
"""The least length that a form may name."""
_FENCE_SHARE = 8
"""A fence whose opening line is longer than this share of a part is text like any other."""
_EARLIEST = 4
"""A cut leaves at least this share of a part filled, unless no other place is found."""
_MOST_MARKS = 64
_SENTENCE_END = re.compile(r"[.!?…。！？]+[\"'”’)\]]*(?=\s)|[。！？]")
_ZERO_WIDTH_JOINER = "\u200d"


class TextPiece(Struct, frozen=True):
    """Characters of a text that are one part, with the lines that open and close a fence around them."""

    start: int
    end: int
    opening: str = ""
    closing: str = ""

    def of(self, text: str) -> str:
        return f"{self.opening}{text[self.start : self.end]}{self.closing}"


class _PartEnd(Struct, frozen=True):
    """Where a part ends, and where the next one begins."""

    end: int
    next_start: int
    closes: CodeBlock | None = None
    """The block within which the part ends."""
    reopens: CodeBlock | None = None
    """The block within which the next one begins."""


def parts_of(text: str, form: ChannelForm) -> list[str]:
    """The texts of the messages that carry the text, in order; none is longer than the form allows, or blank."""
    if form.table_width is not None:
        text = with_tables_drawn(text, form.table_width)
    return [piece.of(text) for piece in cut(text, form)]


def parts_of_own(own: OwnText, form: ChannelForm) -> list[OwnText]:
    """The same for Antiphon's own text: no line in it opens a block of code, and nothing is added where it is cut."""
    return [part_of(own, piece.start, piece.end) for piece in cut(own.text, form, has_fences=False)]


def measure(text: str, unit: LengthUnit) -> int:
    """The length of the text in the unit."""
    return len(text) if unit is LengthUnit.CHARACTERS else len(text) + sum(char > "\uffff" for char in text)


def cut(text: str, form: ChannelForm, *, has_fences: bool = True) -> list[TextPiece]:
    """The pieces: between paragraphs if possible, else between lines, sentences or words, never inside a character.

    They hold all of the text except blanks where it is cut.
    """
    if form.longest is None or measure(text, form.unit) <= form.longest:
        return [TextPiece(0, len(text))] if text.strip() else []
    assert form.longest >= SHORTEST
    return list(_Cutter(text, form.longest, form.unit, has_fences=has_fences).pieces())


class _Cutter:
    def __init__(self, text: str, longest: int, unit: LengthUnit, *, has_fences: bool) -> None:
        self._text = text
        self._longest = longest
        self._unit = unit
        self._fences = list(code_blocks(text, longest // _FENCE_SHARE)) if has_fences else []
        self._starts = [fence.opening_start for fence in self._fences]

    def pieces(self) -> Iterator[TextPiece]:
        text, start, fence = self._text, 0, None
        while start < len(text):
            opening = fence.opening if fence else ""
            room = self._longest - measure(opening, self._unit)
            end = self._reach(start, room)
            found = _PartEnd(end, end)
            if end < len(text):
                found = self._cut(start, self._reach(start, room - self._longest // _FENCE_SHARE - 1))
            shown_end = start + len(text[start : found.end].rstrip())
            if shown_end > start:
                yield TextPiece(start, shown_end, opening, f"\n{found.closes.closing}" if found.closes else "")
            start, fence = found.next_start, found.reopens

    def _reach(self, start: int, room: int) -> int:
        """The furthest end of a part from `start` that is no longer than `room`."""
        text = self._text
        end = min(len(text), start + room)
        if self._unit is LengthUnit.UTF16:
            while (over := measure(text[start:end], self._unit) - room) > 0:
                end -= (over + 1) // 2
        return end

    def _cut(self, start: int, reach: int) -> _PartEnd:
        """Where the part that begins at `start` is cut; a block that ends with the part is not opened again."""
        end = self._end(start, reach)
        fence = self._fence_at(end)
        if fence is not None and end <= fence.start and fence.opening_start > start:
            # Its opening line would stand alone at the end of the part.
            end, fence = fence.opening_start, None
        if fence is None:
            return _PartEnd(end, _after_blanks(self._text, end))
        if end < fence.start:
            return _PartEnd(end, end)
        end = min(end, fence.end)
        next_start = end
        while next_start < fence.end and self._text[next_start] == "\n":
            next_start += 1
        if next_start >= fence.end:
            return _PartEnd(end, _after_blanks(self._text, fence.closing_end), closes=fence)
        return _PartEnd(end, next_start, closes=fence, reopens=fence)

    def _fence_at(self, position: int) -> CodeBlock | None:
        """The fence whose lines the position is between, if any."""
        number = bisect_right(self._starts, position - 1) - 1
        if number < 0 or position >= self._fences[number].closing_end:
            return None
        return self._fences[number]

    def _end(self, start: int, reach: int) -> int:
        text, earliest = self._text, start + max(1, (reach - start) // _EARLIEST)
        for mark in ("\n\n", "\n"):
            found = text.rfind(mark, earliest, reach + 1)
            if found > start and (mark == "\n\n" or self._is_in_fence(found)):
                return found
        sentence = max((match.end() for match in _SENTENCE_END.finditer(text, earliest, reach + 1)), default=0)
        line = text.rfind("\n", earliest, reach + 1)
        if (found := max(min(sentence, reach), line)) > start:
            return found
        for mark in (" ", "\t"):
            if (found := text.rfind(mark, earliest, reach + 1)) > start:
                return found
        return _between_characters(text, start, reach)

    def _is_in_fence(self, position: int) -> bool:
        return self._fence_at(position) is not None


def _after_blanks(text: str, start: int) -> int:
    """Past the blanks between two parts, but not past the indentation of a line."""
    end = start
    while end < len(text) and text[end].isspace():
        end += 1
    if end == len(text):
        return end
    line = text.rfind("\n", start, end)
    return end if line < 0 else line + 1


def _between_characters(text: str, start: int, end: int) -> int:
    """At most `end`, and not between a character and marks that belong to it."""
    found = end
    while found > start + 1 and end - found < _MOST_MARKS and _belongs(text[found - 1], text[found]):
        found -= 1
    return found if end - found < _MOST_MARKS and found > start + 1 else end


def _belongs(before: str, after: str) -> bool:
    return (
        before == _ZERO_WIDTH_JOINER
        or after == _ZERO_WIDTH_JOINER
        or unicodedata.category(after) in ("Mn", "Mc", "Me")
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or ("\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff")
    )
