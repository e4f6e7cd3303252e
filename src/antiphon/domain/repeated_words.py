"""The words of a message: the sender's own, those that their program repeated, and those that they forward. Pure.

Programs for mail repeat what is answered; prompts show a person's own words.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

from msgspec import Struct

_WORD = re.compile(r"\w+")
_ADDRESS = re.compile(r"\b(?:https?|mailto|cid):\S+|\[[^\]\n]{0,200}\]")
MOST_DIFFERENT_WORDS = 3
"""DividedWords in which the two forms of a mail may differ: programs add a few, such as `[image]`."""
_ORIGINAL = re.compile(r"\s*(?:-{2,}|_{5,})\s*(?:[^-_\n]{3,60}?\s*(?:-{2,}|_{5,}))?\s*")
_FIELD = re.compile(r"\*?(?:From|Von|De|Da|Van|Från|Fra|Od)\s?:\*?\s*(.{1,300})", re.IGNORECASE)
_ANY_FIELD = re.compile(r"\*?[\w\s-]{1,30}[:\uff1a]\*?\s*(\S.{0,300})")
_WRITTEN_ADDRESS = re.compile(r"<(?:mailto:)?[^<>\s@]{1,64}@[^<>\s@]{1,255}>|\[mailto:")
_WRITTEN_TIME = re.compile(r"\d{1,2}[:.h]\d{2}|\b(?:19|20)\d{2}\b")
_FORWARD = re.compile(r"\s*(?:fwd?|wg|tr|rv|enc|i|doorst)\s*:", re.IGNORECASE)
_FORWARDED = re.compile(
    r"\s*-{5,}\s*(?:forwarded message|weitergeleitete nachricht|message transféré)\s*-{5,}\s*|"
    r"\s*(?:begin forwarded message|anfang der weitergeleiteten nachricht)\s*:\s*",
    re.IGNORECASE,
)


class DividedWords(Struct, frozen=True):
    """What a message says."""

    own: str
    quoted: str = ""
    """What the sender's program repeated of earlier messages."""
    forwarded: str = ""
    author: str | None = None
    """Who wrote what is forwarded, as it says."""


def words_of(text: str, subject: str) -> DividedWords:
    """Divides the text; `subject` tells a forward from an answer where programs write both alike."""
    lines = [line.rstrip() for line in text.splitlines()]
    forward = next((at for at, line in enumerate(lines) if _FORWARDED.fullmatch(line)), None)
    original = next((at for at in range(len(lines)) if _is_original(lines, at)), None)
    if forward is None and _FORWARD.match(subject):
        forward = original
    if forward is not None:
        passed_on = lines[forward:]
        return DividedWords(_joined(lines[:forward]), forwarded=_joined(passed_on), author=_author_in(passed_on))
    below = [] if original is None else lines[original:]
    own, quoted = _cut(lines if original is None else lines[:original])
    if original is not None and not _joined([*own, *quoted]):  # nobody answers with nothing, in any language
        return DividedWords("", forwarded=_joined(below), author=_author_in(below))
    return DividedWords(_joined(own), quoted=_joined([*quoted, *below]))


def _is_original(lines: Sequence[str], at: int) -> bool:
    """Whether an earlier mail begins here with its fields, as Outlook writes it.

    In a language whose names of fields are not known here, they are told by an address and a time among them.
    """
    if _FIELD.match(lines[at]) is not None:
        return at > 0 and not lines[at - 1] and _has_fields(lines[at + 1 : at + 5])
    if _ANY_FIELD.fullmatch(lines[at]) is not None and (at == 0 or not lines[at - 1]):
        return _is_head(lines[at : at + 6])
    return bool(lines[at]) and _ORIGINAL.fullmatch(lines[at]) is not None and _has_fields(lines[at + 1 : at + 6])


def _is_head(lines: Sequence[str]) -> bool:
    fields = list(takewhile(bool, (_ANY_FIELD.fullmatch(line) for line in lines)))
    values = [field[1] for field in fields if field is not None]
    is_written = any(map(_WRITTEN_ADDRESS.search, values)) and any(map(_WRITTEN_TIME.search, values))
    return len(values) >= 3 and is_written


def _author_in(lines: Sequence[str]) -> str | None:
    head = lines[:8]
    known = next((match[1] for line in head if (match := _FIELD.match(line))), None)
    fields = (match[1] for line in head if (match := _ANY_FIELD.fullmatch(line)))
    return known or next((value for value in fields if _WRITTEN_ADDRESS.search(value)), None)


def _has_fields(lines: Sequence[str]) -> bool:
    return sum(bool(re.match(r"\*?[\w\s-]{1,30}[:\uff1a]\*?\s*\S", line)) for line in lines) >= 2


def _cut(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """The lines without what is quoted above or below them; quotes that answers stand between stay."""
    marked = [line.startswith(">") for line in lines]
    for at in range(1, len(lines)):  # the line that says who wrote it, perhaps broken in two
        if marked[at] and not marked[at - 1]:
            above = at - 1 if lines[at - 1] else at - 2
            if above >= 0 and lines[above].endswith(":"):
                begin = above if above == 0 or not lines[above - 1] or len(lines[above]) > 50 else above - 1
                for each in range(begin, at):
                    marked[each] = True
    own = [line for line, is_marked in zip(lines, marked, strict=True) if not is_marked]
    last = max((at for at, line in enumerate(lines) if line and not marked[at]), default=-1)
    answered = sum(is_marked and not marked[at + 1] for at, is_marked in enumerate(marked[:last]))
    if answered > 1 or last < 0:
        return list(lines), []
    return own, [line for line, is_marked in zip(lines, marked, strict=True) if is_marked]


def _joined(lines: Sequence[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def are_different(plain: str, html: str) -> bool:
    """Whether the two forms of a mail say different things."""
    first, second = _words_in(plain), _words_in(html)
    return max((first - second).total(), (second - first).total()) > MOST_DIFFERENT_WORDS


def _words_in(text: str) -> Counter[str]:
    return Counter(_WORD.findall(_ADDRESS.sub(" ", text.replace(">", " ")).lower()))
