"""What a message points at: what it answers, what it quotes, the addresses behind its words. Pure, for all channels.

Contract: groups 5.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.inbound import Cited
from antiphon.domain.message import Citation, CitationKind, Whose

LONGEST_CITED = 4_096
"""Characters of the words that a message answers."""
LONGEST_ADDRESS = 2_048


class LinkedWords(Struct, frozen=True):
    """Words of a text that lead to an address."""

    end: int
    """Behind them, in characters."""
    address: str


def with_addresses(text: str, links: Sequence[LinkedWords]) -> str:
    """The text with the address behind each of its linked words, unless the text shows it anyway."""
    pieces, begin = list[str](), 0
    for link in sorted(links, key=lambda each: each.end):
        address = link.address
        if not address.isprintable() or " " in address or len(address) > LONGEST_ADDRESS or address in text:
            continue
        pieces += [text[begin : link.end], f" ({address})"]
        begin = link.end
    return "".join([*pieces, text[begin:]])


def cite(kind: CitationKind, whose: Whose, text: str, name: str | None = None) -> Citation:
    """The citation, with no more of the words than a message may point at. Only somebody else needs a name."""
    shown = text if len(text) <= LONGEST_CITED else f"{text[: LONGEST_CITED - 1]}…"
    return Citation(kind=kind, whose=whose, text=shown, name=name if whose is Whose.OTHER else None)


def settled(cited: Cited, *, is_agents: bool) -> Citation:
    """The citation once it is known whether the bot's message shows the agent's own words.

    Otherwise they are somebody else's, whatever account shows them: Antiphon's own texts quote people, too.
    """
    citation = cited.citation
    return replace(citation, whose=Whose.OTHER) if citation.whose is Whose.AGENT and not is_agents else citation
