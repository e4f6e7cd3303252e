"""Decides which messages of a group make the agent answer. Contract: groups 1."""

from enum import StrEnum

from antiphon.domain.session import SessionType
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
