"""What a run has read, in a sentence for people who decide: every surface says the same.

People read what it is and whose it is, never a level. Contract: approvals 4, flow 10.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from antiphon.domain.actor import AGENT
from antiphon.domain.distrust import MAX_SHOWN, MEMORY, NAME, QUARANTINE, SETTINGS, UNREVIEWED, ReadSource
from antiphon.domain.own_text import Code, OwnText, own_text
from antiphon.domain.text import exact, shown_name
from antiphon.domain.transcript import SUMMARY
from antiphon.domain.trusted_content import TrustedContent

MOST_KINDS: Final = 3
"""Kinds of sources that the sentence names; it counts the others."""
_NOUNS: Final[Mapping[str, tuple[str, str]]] = {
    SUMMARY: ("a summary of earlier messages", "summaries of earlier messages"),
    MEMORY: ("a note", "notes"),
    NAME: ("the name of this chat", "names of this chat"),
    UNREVIEWED: (
        "the description of an unreviewed tool",
        "descriptions of unreviewed tools",
    ),
    QUARANTINE: ("a value that a sub-agent read in quarantine", "values that sub-agents read in quarantine"),
    SETTINGS: ("what the settings do not trust", "things that the settings do not trust"),
    AGENT: ("a message of the agent", "messages of the agent"),
}
"""What needs no name, once and several times."""
_RESULT: Final = ("a result of", "results of")
_MESSAGE: Final = ("a message of", "messages of")


def was_read(sources: Sequence[ReadSource], names: Mapping[str, str]) -> OwnText:
    """Such as “A result of mail_read and 2 messages of Ann were read.”; `names` are those of persons."""
    counts: dict[tuple[str | None, str], int] = {}
    # What the agent said itself is told of only where nothing else was read.
    for source in [each for each in sources if (each.tool or each.actor) != AGENT] or sources:
        kind = source.tool, source.actor if source.tool is None else ""
        counts[kind] = counts.get(kind, 0) + 1
    phrases = [_phrase(tool, actor, count, names) for (tool, actor), count in counts.items()][:MOST_KINDS]
    if hidden := sum([*counts.values()][MOST_KINDS:]):
        phrases.append((f"{hidden} more",))
    pieces: list[str | Code] = []
    for number, phrase in enumerate(phrases):
        if number:
            pieces.append(" and " if number == len(phrases) - 1 else ", ")
        pieces += phrase
    first = str(pieces[0])
    said = " was read." if sum(counts.values()) == 1 else " were read."
    return own_text(first[:1].upper() + first[1:], *pieces[1:], said)


def actors_in(sources: Sequence[ReadSource]) -> list[str]:
    """Whom the sentence may name, and the first sources, if they are shown one by one."""
    return list(dict.fromkeys(source.actor for source in sources if source.tool is None))[:MAX_SHOWN]


def from_whom(source: ReadSource | TrustedContent, names: Mapping[str, str]) -> str:
    """What the source is, and whose."""
    return own_text(*_phrase(source.tool, source.actor, 1, names)).text


def first_words_of(source: ReadSource) -> str:
    """How the source begins: others chose these words, so nothing in them hides."""
    return exact(source.first_words)


def _phrase(tool: str | None, actor: str, count: int, names: Mapping[str, str]) -> tuple[str | Code, ...]:
    noun, name = _NOUNS.get(tool or actor), None
    if noun is None:
        noun, name = (_RESULT, tool) if tool is not None else (_MESSAGE, names.get(actor, actor))
    one, several = noun
    said = one if count == 1 else f"{count} {several}"
    return (said,) if name is None else (f"{said} ", Code(shown_name(name)))
