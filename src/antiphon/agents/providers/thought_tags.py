"""Thoughts that a server sends in the text, between tags at its beginning. Words that mention a tag stay words."""

import re
from collections.abc import Iterator
from typing import Final

NAMES: Final = (
    *("think", "thinking", "thought", "thoughts", "reasoning", "reason", "analysis", "reflection", "scratchpad"),
    *("inner_monologue", "seed:think", "antthinking", "ant_thinking"),
)
MOST_HELD: Final = 1_000
"""Characters, blanks among them, after which a beginning is no tag."""
_OPENING: Final = re.compile(rf"<(?P<name>{'|'.join(NAMES)})(?:\s[^<>]{{0,100}})?>", re.IGNORECASE)
_LONGEST_OPENING: Final = max(map(len, NAMES)) + 2
_BEGINS: Final = frozenset(f"<{name}>"[:size] for name in NAMES for size in range(1, len(name) + 3))
"""What a tag may begin with, in lower case."""
_PROSE: Final = re.compile(r" \w[^\n]*")


class ThoughtTags:
    """Tells the thoughts at the beginning of an answer's text from its words, wherever the pieces are cut.

    Only what may belong to a tag is held back. What follows a tag that is never closed is a thought, unless it is one
    line of prose about the tag.
    """

    def __init__(self) -> None:
        self._held: str = ""
        """Text that may be a tag, or the beginning of one."""
        self._closing: str | None = None
        """The tag that ends the present thought, in lower case."""
        self._find_closing: re.Pattern[str] = _OPENING
        self._opening: str = ""
        self._thought: list[str] = []
        """The present thought, as it would be read if it were words."""
        self.is_over = False
        """Whether words have come: no tag counts from here on."""

    def add(self, piece: str) -> Iterator[tuple[str, bool]]:
        """The text that this piece makes known, in order, each with whether it is a thought."""
        if self.is_over:
            if piece:
                yield piece, False
            return
        self._held += piece
        while self._held:
            if self._closing is not None:
                thought, is_closed = self._until_closing()
                if thought:
                    self._thought.append(thought)
                    yield thought, True
                if not is_closed:
                    return
                continue
            begun = self._held.lstrip()
            if opening := _OPENING.match(begun):
                self._opening, self._closing = opening[0], f"</{opening['name'].lower()}>"
                self._find_closing = re.compile(re.escape(self._closing), re.IGNORECASE)
                self._held, self._thought = begun[opening.end() :], []
            elif (not begun or _may_be_opening(begun)) and len(self._held) < MOST_HELD:
                return
            else:
                self.is_over = True
                # Blanks between a thought and the words belong to neither.
                yield (begun if self._opening else self._held), False
                self._held = ""

    def end(self, *, is_whole_answer: bool) -> tuple[str, str]:
        """The words that are still held back, and the thought that was one only by its tag: both may be empty."""
        held, self._held = self._held, ""
        self.is_over = True
        if self._closing is None:
            return ("" if self._opening else held), ""
        thought = "".join(self._thought)
        if is_whole_answer and _PROSE.fullmatch(thought + held):
            return f"{self._opening}{thought}{held}", thought
        return "", ""

    def _until_closing(self) -> tuple[str, bool]:
        """The part of the text that is surely a thought, and whether the thought is at its end."""
        assert self._closing is not None
        if found := self._find_closing.search(self._held):
            thought, self._held = self._held[: found.start()], self._held[found.end() :]
            self._closing = None
            return thought, True
        sizes = range(len(self._closing) - 1, 0, -1)
        kept = next((size for size in sizes if self._held[-size:].lower() == self._closing[:size]), 0)
        thought, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        return thought, False


def _may_be_opening(text: str) -> bool:
    """Whether more text can make an opening tag of it."""
    if text[0] != "<":
        return False
    lowered = text.lower()
    if len(lowered) <= _LONGEST_OPENING and lowered in _BEGINS:
        return True
    name, blank, rest = lowered[1:].partition(" ")
    return bool(blank) and name in NAMES and len(rest) <= 100 and "<" not in rest and ">" not in rest
