"""Which messages of a group make the agent answer. Contract: groups 1, 2."""

from enum import StrEnum

from antiphon.domain.message import Provenance, ProvenanceKind
from antiphon.domain.session import SessionType
from antiphon.domain.text import bracketed_name


class OwnerTrigger(StrEnum):
    ALWAYS = "always"
    MENTION = "mention"


def is_triggering(session_type: SessionType, *, is_owner: bool, mentioned: bool, owner_trigger: OwnerTrigger) -> bool:
    """Whether a posted message starts a run; one that does not is stored for later turns."""
    if session_type is SessionType.DIRECT or mentioned:
        return True
    return is_owner and owner_trigger is OwnerTrigger.ALWAYS


def shown_prefix(
    session_type: SessionType, *, sender: str | None, is_owner: bool, mentioned: bool, provenance: Provenance
) -> str:
    """What the model sees before a message's text: in groups `[Name] `, and whether it was meant for it."""
    if session_type is SessionType.DIRECT or provenance.kind is not ProvenanceKind.EXTERNAL or sender is None:
        return ""
    aside = "[not directed at you] " if is_owner and not mentioned else ""
    return f"[{bracketed_name(sender)}] {aside}"
