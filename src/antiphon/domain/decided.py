"""What rules decided about an entry before it first stood in a prompt. Contract: flow 9.

The step whose prompt first held the entry keeps it, and every later prompt shows the entry so.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import Struct

BLOCK: Final = "BLOCK"


class CutOut(NamedTuple):
    """A part of a text that rules took out."""

    start: int
    end: int
    rules: tuple[str, ...]
    """Their ids, sorted."""


def cut(text: str, stretches: Iterable[CutOut]) -> str:
    """The text with a mark in the place of each stretch; these are in the order of the text and do not overlap."""
    shown: list[str] = []
    place = 0
    for start, end, rules in stretches:
        shown += (text[place:start], f"[redacted: {', '.join(rules)}]")
        place = end
    return "".join((*shown, text[place:]))


class DecidedPart(Struct, frozen=True, omit_defaults=True, gc=False):
    """What was taken out of one text of an entry."""

    index: int
    """Of a part of its content; of what it cites, counted from -1 down."""
    stretches: tuple[CutOut, ...]


class DecidedEntry(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A decision about one message."""

    action: str
    rules: tuple[str, ...]
    set: str
    """The hash of the rules that were in force."""
    seq: int
    """Of the message; of the step, for a result of its calls."""
    call: int | None = None
    """Which of the step's calls, for a result."""
    parts: tuple[DecidedPart, ...] = ()
