"""The searchable words of a text: the same reading of words for messages and queries. Contract: search 1.

A word is a run of letters, marks and numbers, of any script. Scripts without blanks between words are read by
single characters and pairs of neighbours, so that search also finds a part of such a run.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from unicodedata import category, normalize

from antiphon.domain.errors import Invalid

MAX_WORD_BYTES = 64
"""In UTF-8; only this much of a longer word counts, in texts and queries."""
MAX_WORDS = 10_000
"""Of one text; later words are not found."""
PART = 16 * 1024
MAX_QUERY_CHARACTERS = 1_000
MAX_QUERY_WORDS = 32

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # kana, Han
    "\uac00-\ud7a3"  # Hangul: its words have endings
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"  # more kana, more Han
)
_PIECES = re.compile(f"([{_UNSPACED}]+)|[^{_UNSPACED}]+")
_INVISIBLE = re.compile("[\u00ad\u034f\u200c\u200d\u2060\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]")
"""Soft hyphens, joiners, variants: they change how a word looks, not which word it is."""


class _Separators(dict[int, str | int]):
    """For `str.translate`: a blank in place of each character that is not part of a word."""

    def __missing__(self, code: int) -> str | int:
        kind = category(chr(code))
        found = self[code] = code if kind[0] in "LMN" or kind == "Co" else " "
        return found


_SEPARATORS = _Separators()


class WordPiece(NamedTuple):
    text: str
    is_unspaced: bool


def words_of(text: str) -> list[str]:
    """The distinct words of a text, in the order of their first occurrence."""
    found: dict[str, None] = {}
    for piece in _pieces(text):
        found.update(dict.fromkeys(_singles_and_pairs(piece.text) if piece.is_unspaced else (_cut(piece.text),)))
        if len(found) >= MAX_WORDS:
            break
    return list(found)[:MAX_WORDS]


def query_words(query: str) -> list[str]:
    """The distinct words of the query; a message must contain all of them. There are no operators.

    Raises `Invalid` for a query without words, or with too many.
    """
    if len(query) > MAX_QUERY_CHARACTERS:
        raise Invalid(
            f"Query is too long: {len(query)} characters, at most {MAX_QUERY_CHARACTERS}. Search for fewer words.",
            code="invalid_query",
        )
    pieces = list(dict.fromkeys(_pieces(query)))
    if not pieces:
        raise Invalid(
            "Query has no word. Use one or more words with letters or digits; a message must contain all of them.",
            code="invalid_query",
        )
    if len(pieces) > MAX_QUERY_WORDS:
        raise Invalid(
            f"Query has too many words: {len(pieces)}, at most {MAX_QUERY_WORDS}. Search for fewer words.",
            code="invalid_query",
        )
    return list(dict.fromkeys(_needed(pieces)))


def _needed(pieces: Iterable[WordPiece]) -> Iterator[str]:
    for piece in pieces:
        if not piece.is_unspaced:
            yield _cut(piece.text)
        elif len(piece.text) == 1:
            yield piece.text
        else:
            yield from _pairs(piece.text)


def _pieces(text: str) -> Iterator[WordPiece]:
    for part in _parts(text):
        yield from _pieces_of_part(part)


def _parts(text: str) -> Iterator[str]:
    """The text in parts, cut at blanks if there are any; no call into C reads more than one part."""
    start = 0
    while len(text) - start > PART:
        blank = max(text.rfind(" ", start, start + PART), text.rfind("\n", start, start + PART))
        if blank > start:
            yield text[start:blank]
            start = blank
        else:
            yield text[start : start + PART]
            start += PART - 1  # neighbours stay together
    yield text[start:]


def _pieces_of_part(text: str) -> Iterator[WordPiece]:
    for run in folded(text).translate(_SEPARATORS).split():
        if run.isascii():
            yield WordPiece(run, False)
            continue
        for piece in _PIECES.finditer(run):
            yield WordPiece(piece[0], piece[1] is not None)


def folded(text: str) -> str:
    """The text without differences that searching ignores: case, width, ligatures, composition. Idempotent."""
    if text.isascii():
        return text.lower()
    folded = normalize("NFKC", normalize("NFD", _INVISIBLE.sub("", text)).casefold())
    return normalize("NFKC", folded.casefold())


def _singles_and_pairs(run: str) -> Iterator[str]:
    yield from run
    yield from _pairs(run)


def _pairs(run: str) -> Iterator[str]:
    for at in range(len(run) - 1):
        yield run[at : at + 2]


def _cut(word: str) -> str:
    if len(word) * 4 <= MAX_WORD_BYTES:
        return word
    return word.encode()[:MAX_WORD_BYTES].decode(errors="ignore")
