"""Removes secrets from text before another session's agent reads it. Contract: history 3.

Whether text is a secret depends on its beginning and on at most `REACH` characters around it. So a part of a text can
be redacted without the rest, and comes out as it would in the whole. The cost of each character is bounded, and
no call into C reads more than `PIECE` of them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from antiphon.domain.assignments import Assignments, may_assign
from antiphon.domain.secret_forms import LONGEST_KEY, find_private_keys, find_tokens, may_have_form
from antiphon.domain.spans import LONGEST_VALUE, LOOKAHEAD, MASK, Span, merged

RULES = 3
"""Increases with each change of the rules; text indexed under older rules is indexed again."""
PIECE = 16 * 1024
REACH = LONGEST_VALUE + 1024
"""The greatest distance from a secret's name to its end; private keys reach `LONGEST_KEY`."""


class Redacted(NamedTuple):
    text: str
    was_redacted: bool


class Beginning(NamedTuple):
    """The beginning of a redacted text."""

    text: str
    was_redacted: bool
    is_whole: bool


def redact(text: str) -> Redacted:
    """The text with `[redacted]` in place of keys, tokens, passwords and private keys.

    Redacting twice gives the same as once.
    """
    if not may_have_form(text) and not may_assign(text):
        return Redacted(text, was_redacted=False)
    pieces = list(redacted_pieces(text))
    return Redacted("".join(piece.text for piece in pieces), any(piece.was_redacted for piece in pieces))


def find_secrets(text: str) -> list[Span]:
    """Where `redact` would take something out, in the order of the text."""
    return _spans(text, 0, len(text)) if may_have_form(text) or may_assign(text) else []


def redact_part(text: str, start: int, end: int) -> Redacted:
    """`text[start:end]` without the secrets that `redact` would remove; reads only this part and its surroundings."""
    spans = [(max(begin, start), min(to, end)) for begin, to in _spans(text, start, end) if begin < end and to > start]
    shown: list[str] = []
    place = start
    for begin, to in spans:
        shown += (text[place:begin], MASK)
        place = to
    shown.append(text[place:end])
    return Redacted("".join(shown), bool(spans))


def redact_beginning(text: str, most: int) -> Beginning:
    """At most `most` characters of the result of `redact`, at the cost of about as many of the text."""
    shown: list[str] = []
    length, was_redacted = 0, False
    for piece in redacted_pieces(text, min(most, PIECE)):
        shown.append(piece.text)
        length += len(piece.text)
        was_redacted |= piece.was_redacted
        if length > most:
            return Beginning("".join(shown)[:most], was_redacted, False)
    return Beginning("".join(shown), was_redacted, True)


def redacted_pieces(text: str, size: int = PIECE) -> Iterator[Redacted]:
    """The redacted text in parts, each from `size` characters of the original text."""
    reaching: list[Span] = []
    is_masked = False
    for start in range(0, len(text), size):
        end = min(start + size, len(text))
        spans = merged((*reaching, *_begun(text, start, end), *find_private_keys(text, start, end)))
        shown: list[str] = []
        place = start
        within = [span for span in spans if span[0] < end]  # a name's value may begin after its piece
        for begin, to in within:
            if begin > start or not is_masked:
                shown += (text[place : max(begin, start)], MASK)
            place = min(to, end)
        shown.append(text[place:end])
        is_masked = bool(within) and within[-1][1] >= end
        reaching = [span for span in spans if span[1] > end]
        yield Redacted("".join(shown), bool(within))


def _spans(text: str, start: int, end: int) -> list[Span]:
    """All secrets that overlap the text from `start` up to `end`."""
    found: list[Span] = []
    for begin in range(max(0, start - REACH), end, PIECE):
        found += _begun(text, begin, min(begin + PIECE, end))
    for begin in range(max(0, start - LONGEST_KEY), end, PIECE):
        found += find_private_keys(text, begin, min(begin + PIECE, end))
    return [span for span in merged(found) if span[1] > start]


def _begun(text: str, start: int, end: int) -> Iterator[Span]:
    yield from find_tokens(text, start, end)
    yield from Assignments(text).find(start, end)


assert LOOKAHEAD < PIECE
