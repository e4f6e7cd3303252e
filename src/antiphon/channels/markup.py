"""The Markdown of models, and Antiphon's own texts, as text with marked spans, for all channels. Pure.

Spans need no escaping, and whatever is not understood stays as it was written.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from antiphon.domain.own_text import CodeSpan

_OPENING = re.compile(r"^```([^\n`]*)\n", re.MULTILINE)
_CLOSING = re.compile(r"^```[ \t]*$", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} +(\S[^\n]*)$", re.MULTILINE)
_INLINE = re.compile(
    r"`(?P<code>[^`\n]+)`"
    r"|\[(?P<label>[^\[\]\n]+)\]\((?P<url>https?://[^\s()]+)\)"
    r"|\*\*(?=\S)(?P<bold>(?:[^\n*]|\*(?!\*))+)(?<=\S)\*\*"
    r"|~~(?=\S)(?P<strikethrough>[^~\n]+)(?<=\S)~~"
    r"|(?<![\w*])\*(?=[^\s*])(?P<italic>[^*\n]+)(?<=\S)\*(?![\w*])"
    r"|(?<!\w)_(?=[^\s_])(?P<italic_>[^_\n]+)(?<=\S)_(?!\w)"
)
_DEEPEST = 3


class _FencedCode(Struct, frozen=True):
    """A block of code with the lines around it."""

    start: int
    end: int
    language: str
    code: str


class StyledSpan(Struct, frozen=True, kw_only=True):
    """A part of the text that is shown in another way."""

    kind: str
    """`pre | code | bold | italic | strikethrough | text_link`."""
    offset: int
    """In units of UTF-16, like `length`."""
    length: int
    language: str | None = None
    url: str | None = None


class DrawnText(Struct, frozen=True):
    """A text as it is sent."""

    text: str
    spans: Sequence[StyledSpan]
    written: str
    """The text instead if the spans are refused."""


class StyledText(Struct, frozen=True):
    """A part of a text in which the same spans hold."""

    text: str
    kinds: frozenset[str]
    url: str | None


def styled_texts(drawn: DrawnText) -> Iterator[StyledText]:
    """The whole text, cut where a span begins or ends."""
    units = drawn.text.encode("utf-16-le", "surrogatepass")
    edges = {place for each in drawn.spans for place in (each.offset, each.offset + each.length)}
    for start, stop in pairwise(sorted({0, *edges, len(units) // 2})):
        over = [each for each in drawn.spans if each.offset <= start < each.offset + each.length]
        text = units[start * 2 : stop * 2].decode("utf-16-le", "replace")
        yield StyledText(
            text, frozenset(each.kind for each in over), next((each.url for each in over if each.url), None)
        )


def verbatim(text: str, spans: Sequence[CodeSpan]) -> DrawnText:
    """The text as it is, whatever stands in it; only the spans are code."""
    ends, units, at = list[int](), 0, 0
    for place in (place for each in spans for place in (each.start, each.end)):
        units += _units(text[at:place])
        ends.append(units)
        at = place
    styled = [
        StyledSpan(kind="pre" if each.is_block else "code", offset=start, length=end - start)
        for each, start, end in zip(spans, ends[::2], ends[1::2], strict=True)
    ]
    return DrawnText(text, styled, text)


def render(markdown: str) -> DrawnText:
    """The text without its marks, and the spans that they marked. The text is never longer than it was."""
    drawn = _Drawn()
    end = 0
    for fence in _fences(markdown):
        _draw_lines(drawn, markdown[end : fence.start])
        is_named = re.fullmatch(r"[\w+#.-]{1,30}", fence.language) is not None
        drawn.mark("pre", fence.code, language=fence.language if is_named else None)
        end = fence.end
    _draw_lines(drawn, markdown[end:])
    text = "".join(drawn.pieces)
    return DrawnText(text, drawn.spans, markdown) if text.strip() else DrawnText(markdown, [], markdown)


def _fences(markdown: str) -> Iterator[_FencedCode]:
    """The closed ones. If one is not closed, none behind it is, so each line is read once."""
    end = 0
    while (opening := _OPENING.search(markdown, end)) and (closing := _CLOSING.search(markdown, opening.end())):
        code = markdown[opening.end() : closing.start()].removesuffix("\n")
        end = closing.end()
        yield _FencedCode(opening.start(), end, opening[1].strip(), code)


class _Drawn:
    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.spans: list[StyledSpan] = []
        self.units = 0

    def add(self, text: str) -> None:
        self.pieces.append(text)
        self.units += _units(text)

    def mark(self, kind: str, text: str, *, language: str | None = None, url: str | None = None) -> None:
        """Adds text that is one span, unless it is empty."""
        if text:
            self.spans.append(StyledSpan(kind=kind, offset=self.units, length=_units(text), language=language, url=url))
            self.add(text)


def _draw_lines(drawn: _Drawn, text: str) -> None:
    end = 0
    for heading in _HEADING.finditer(text):
        _draw_inline(drawn, text[end : heading.start()], 0)
        _draw_marked(drawn, "bold", heading[1], 0)
        end = heading.end()
    _draw_inline(drawn, text[end:], 0)


def _draw_inline(drawn: _Drawn, text: str, depth: int) -> None:
    end = 0
    for found in _INLINE.finditer(text) if depth < _DEEPEST else ():
        drawn.add(text[end : found.start()])
        kind = (found.lastgroup or "").rstrip("_")
        if kind == "code":
            drawn.mark("code", found["code"])
        elif kind == "url":
            drawn.mark("text_link", found["label"], url=found["url"])
        else:
            _draw_marked(drawn, kind, found[found.lastgroup or 0], depth)
        end = found.end()
    drawn.add(text[end:])


def _draw_marked(drawn: _Drawn, kind: str, text: str, depth: int) -> None:
    """Adds text that is one span and may have others within."""
    index, begin = len(drawn.spans), drawn.units
    _draw_inline(drawn, text, depth + 1)
    drawn.spans.insert(index, StyledSpan(kind=kind, offset=begin, length=drawn.units - begin))


def _units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
