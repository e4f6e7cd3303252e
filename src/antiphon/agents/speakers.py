"""How prompts of groups say who speaks: a prefix that nobody else can have, and lines that cannot look like one.

Contract: groups 2.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping

from msgspec import Struct

from antiphon.domain.message import Part, TextPart
from antiphon.domain.person import PersonRole
from antiphon.domain.text import bracketed_name

TAG_LETTERS = 5
ASIDE = "[not directed at you] "
ADDED = "[added later] "
"""Before a message whose time somebody else than the runtime gave."""
SYNTHETIC_TURN = "[added later, and not written by you] "
"""Before an assistant's message that no model wrote."""
INDENT = "  "


class Speakers(Struct, frozen=True):
    """The people of a conversation, as its prompts tell them apart."""

    key: bytes
    """The home's key for fences."""
    roles: Mapping[str, PersonRole]
    """The present roles of owners and users, by actor; all others are guests."""

    def prefix_of(self, actor: str, name: str | None, *, is_aside: bool) -> str:
        """`[Name (role tag)] `. Its end is the runtime's: the actor has it in every prompt, and nobody else."""
        role = self.roles.get(actor, PersonRole.GUEST)
        mark = f"{role.value} {self._tag(actor)}"
        shown = f"[{mark}] " if name is None else f"[{_name(name)} ({mark})] "
        return shown + ASIDE if is_aside and role is PersonRole.OWNER else shown

    def _tag(self, actor: str) -> str:
        """From the actor and the home's key alone: it survives summaries and restarts, and cannot be tried out."""
        drawn = hmac.digest(self.key, f"speaker {actor}".encode(), hashlib.sha256)
        return base64.b32encode(drawn).decode().lower()[:TAG_LETTERS]


def _name(name: str) -> str:
    """The name without the marks that end a prefix."""
    return " ".join(bracketed_name(name).replace("(", " ").replace(")", " ").split()) or "somebody"


def spoken(prefix: str, content: tuple[Part, ...]) -> tuple[Part, ...]:
    """The content with the prefix before its text, and each further line indented."""
    shown: list[Part] = []
    for part in content if content and isinstance(content[0], TextPart) else (TextPart(text=""), *content):
        lead = INDENT if shown else prefix
        shown.append(TextPart(text=lead + indented(part.text)) if isinstance(part, TextPart) else part)
    return tuple(shown)


def indented(text: str) -> str:
    """The text with blanks before each of its lines but the first, whatever separates them."""
    first, *others = text.splitlines(keepends=True) or [""]
    return first + "".join(line if line.isspace() else INDENT + line for line in others)
