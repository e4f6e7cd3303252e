"""Decides which messages of a group make the agent answer. Contract: groups 1, 2."""

from enum import StrEnum

from antiphon.domain.message import Provenance, ProvenanceKind
from antiphon.domain.session import SessionType
from antiphon.domain.text import bracketed_name
from antiphon.policy.rights import is_heard_unnamed
from antiphon.policy.standing import Standing


class OwnerTrigger(StrEnum):
    ALWAYS = "always"
    MENTION = "mention"


def is_triggering(session_type: SessionType, by: Standing, *, mentioned: bool, owner_trigger: OwnerTrigger) -> bool:
    """Whether a posted message starts a run; other messages are stored for later turns."""
    if session_type is SessionType.DIRECT or mentioned:
        return True
    return owner_trigger is OwnerTrigger.ALWAYS and is_heard_unnamed(by)


def shown_prefix(
    session_type: SessionType, *, is_owners: bool, sender: str | None, mentioned: bool, provenance: Provenance
) -> str:
    """The prefix before a message's text in the prompt: in groups `[Name] `, and if an owner's was an aside."""
    if session_type is SessionType.DIRECT or provenance.kind is not ProvenanceKind.EXTERNAL or sender is None:
        return ""
    aside = "[not directed at you] " if not mentioned and is_owners else ""
    return f"[{bracketed_name(sender)}] {aside}"
