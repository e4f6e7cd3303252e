"""Antiphon's own words to people, which surfaces draw as they are. Contract: approvals 4, channels 1.

Agents write Markdown, which a surface may render. In Antiphon's own texts nothing is markup: they hold names, titles
and arguments that others chose. What is code in them is marked by its place, not by characters.
"""

from typing import NamedTuple

from msgspec import Struct


class CodeSpan(Struct, frozen=True, array_like=True):
    """A stretch of a text that is shown as code, in characters. No markup holds within it."""

    start: int
    end: int
    is_block: bool = False
    """Whether it stands on lines of its own."""


class OwnText(Struct, frozen=True):
    text: str
    spans: tuple[CodeSpan, ...] = ()
    """In order; they do not overlap."""


class Code(NamedTuple):
    """A piece that is shown as code: a name, a title, arguments."""

    text: str
    is_block: bool = False


def own_text(*pieces: str | Code | OwnText) -> OwnText:
    """The pieces one after the other."""
    texts: list[str] = []
    spans: list[CodeSpan] = []
    length = 0
    for piece in pieces:
        match piece:
            case str():
                text = piece
            case Code(text=text, is_block=is_block):
                if text:
                    spans.append(CodeSpan(length, length + len(text), is_block))
            case OwnText(text=text):
                spans += (CodeSpan(length + each.start, length + each.end, each.is_block) for each in piece.spans)
        texts.append(text)
        length += len(text)
    return OwnText("".join(texts), tuple(spans))


def part_of(own: OwnText, start: int, end: int) -> OwnText:
    """Those characters of it, with what is code in them."""
    clipped = (
        CodeSpan(max(each.start, start) - start, min(each.end, end) - start, each.is_block) for each in own.spans
    )
    return OwnText(own.text[start:end], tuple(each for each in clipped if each.start < each.end))
