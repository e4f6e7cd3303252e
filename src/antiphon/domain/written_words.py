"""A sentence cut into words, as the readers of written times see it. Contract: tasks 1."""

import re

from msgspec import Struct

SEARCHED = 1_000
"""Characters. What stands later in a text is no time."""
_WORD = re.compile(r"[0-9]+|[^\W\d_]+(?:['\u2019][^\W\d_]+)*|\S")
_ENDS = frozenset(",.;:!?)]}\"'\u201d\u2019")
"""Signs that may stand right after a time."""


class WrittenWord(Struct, frozen=True):
    """Digits, letters, or one other sign."""

    text: str
    """In lower case. `today's` is one word, so that it is not taken for `today`."""
    start: int
    end: int
    is_joined: bool
    """Whether no blank stands before it."""


class Sentence(Struct, frozen=True):
    text: str
    words: tuple[WrittenWord, ...]

    def at(self, index: int) -> str:
        """The word there, in lower case; empty beyond the ends."""
        return self.words[index].text if 0 <= index < len(self.words) else ""

    def joined(self, index: int) -> str:
        """The word there if no blank stands before it, else nothing."""
        return self.at(index) if 0 <= index < len(self.words) and self.words[index].is_joined else ""

    def written(self, start: int, end: int) -> str:
        """Those words as they are written."""
        shown = self.words[start:end]
        return self.text[shown[0].start : shown[-1].end] if shown else ""

    def has(self, index: int, *words: str) -> bool:
        """Whether exactly these words stand there."""
        return all(self.at(index + number) == word for number, word in enumerate(words))

    def is_over(self, index: int) -> bool:
        """Whether what was read before that word ends there: `8,` and `8 x`, not `8ish`, `8-9` and `8.5`."""
        sign = self.joined(index)
        return not sign or (sign in _ENDS and not self.joined(index + 1).isdigit())


def sentence_of(text: str) -> Sentence:
    """The text with the words near its beginning."""
    words: list[WrittenWord] = []
    for match in _WORD.finditer(text, 0, SEARCHED):
        is_joined = bool(words) and words[-1].end == match.start()
        words.append(WrittenWord(match[0].lower().replace("\u2019", "'"), match.start(), match.end(), is_joined))
    if len(text) > SEARCHED and words:
        words.pop()  # it may be cut
    return Sentence(text, tuple(words))


def digits(text: str, longest: int) -> int | None:
    """The number of that many digits at most; None for other words."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= longest else None
