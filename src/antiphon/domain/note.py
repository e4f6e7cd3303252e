"""Notes: what an agent remembers of the people that it talks to. Contract: checkpoints 2."""

import re
from datetime import datetime
from typing import Final

from msgspec import Struct

from antiphon.domain.classification import Classification
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId, NoteId, SessionRow

MAX_NOTE_CHARACTERS: Final = 1_000
MAX_NOTES: Final = 1_000
"""Of one scope, as far as one writer may see them. A full scope takes no more: nothing is forgotten silently."""
MAX_WORKING_MEMORY_BYTES: Final = 4 * 1024
MAX_SHOWN_BYTES: Final = 4 * 1024
"""Of notes in one prompt."""
EVERYONE: Final = "everyone"
"""The holder of what owners share with all chats of an agent."""
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that control a terminal or the direction of text, and halves of characters; no tabs and line breaks."""


class MemoryScope(Struct, frozen=True):
    """Whose notes they are. The runtime finds it; no argument ever names it."""

    agent_id: AgentId
    holder: str
    """`person:<id>`, `group:<channel>:<type>:<id>`, `session:<row>`, or `EVERYONE`."""

    @property
    def is_shared(self) -> bool:
        return self.holder == EVERYONE


class ReadableNotes(Struct, frozen=True):
    """The notes of a scope, and those that are shared, which flow to a clearance. No others count for anything."""

    scope: MemoryScope
    clearance: Classification


class Note(Struct, frozen=True, kw_only=True):
    """One thing to remember."""

    id: NoteId
    agent_id: AgentId
    holder: str
    """As in `MemoryScope`."""
    text: str
    made_of: Classification
    """The context of what wrote it. Contract: flow 8."""
    made_by: str
    """The actor that wrote its present text."""
    session: SessionRow | None = None
    """Where it was learnt; None if a person wrote it outside of any session."""
    seq: int | None = None
    """The message from which it was learnt."""
    session_key: str | None = None
    """None also if that session was deleted."""
    version: int = 1
    """Grows with each change."""
    created_at: datetime
    updated_at: datetime

    @property
    def is_shared(self) -> bool:
        return self.holder == EVERYONE


def parse_note(text: str) -> str:
    """The text without blanks around it. Raises `Invalid` (`invalid_note`)."""
    text = text.strip()
    if len(text) > MAX_NOTE_CHARACTERS:
        why = f"has {len(text)} characters, at most {MAX_NOTE_CHARACTERS}. Say it shorter, or make several notes"
    elif not any(character.isprintable() and not character.isspace() for character in text):
        why = "is empty. Write what is to be remembered"
    elif found := _CONTROLS.search(text):
        why = f"has a control character: {found[0]!a}. Write plain text"
    else:
        return text
    raise Invalid(f"Note {why}.", code="invalid_note")


def parse_working_memory(text: str) -> str:
    """The text without blanks around it; it may be empty. Raises `Invalid` (`invalid_working_memory`)."""
    text = text.strip()
    if found := _CONTROLS.search(text):
        why = f"has a control character: {found[0]!a}. Write plain text"
    elif (size := len(text.encode())) > MAX_WORKING_MEMORY_BYTES:
        why = f"has {size} bytes, at most {MAX_WORKING_MEMORY_BYTES}. Keep what the next turns need"
    else:
        return text
    raise Invalid(f"Working memory {why}.", code="invalid_working_memory")
