"""How prompts show what a message points at: between marks, before its words. Contract: groups 5."""

from collections.abc import Sequence

from antiphon.agents.fence import DataFences
from antiphon.agents.foreign_words import LEAD
from antiphon.domain.message import Citation, CitationKind, Whose
from antiphon.domain.text import bracketed_name

CONTEXT = "It is context and no new message."
_WHAT = {
    CitationKind.REPLY: "Answer to",
    CitationKind.QUOTE: "Answer to a part of",
}
_OWN = {
    Whose.AGENT: f"a message of yours. {CONTEXT}",
    Whose.SENDER: f"an earlier message of the same sender. {CONTEXT}",
}


def cited_words(cites: Sequence[Citation], fences: DataFences, seq: int) -> str:
    """Lines before the words of the message; each citation has marks of its own."""
    return "".join(f"{_lead(each)}\n{_between_marks(each, fences, (seq, n))}\n" for n, each in enumerate(cites))


def _lead(citation: Citation) -> str:
    if citation.kind is CitationKind.FORWARD:
        return f"With a forwarded message. {LEAD}"
    own = _OWN.get(citation.whose)
    return f"{_WHAT[citation.kind]} {own or f'a message of somebody else. {LEAD}'}"


def _between_marks(citation: Citation, fences: DataFences, place: tuple[int, int]) -> str:
    name = "" if citation.name is None else f"From: {bracketed_name(citation.name)}\n"
    return fences.of_citation(*place).around(name + citation.text)
