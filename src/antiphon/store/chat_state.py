"""What a check of the database says about channels with people in them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

CHATS_SCHEMA = 24
"""The migration that made their tables."""
LIST_TROUBLES = "SELECT channel, trouble FROM channel_accounts WHERE trouble IS NOT NULL"
COUNT_OWNERS = (
    "SELECT n.channel, count(*) FROM identities n JOIN people q ON q.id = n.person "
    "WHERE q.role = 'owner' AND q.is_suspended = 0 GROUP BY n.channel"
)
COUNT_ASKED = "SELECT channel, count(*) FROM groups_of_channels WHERE state = 'asked' GROUP BY channel"
COUNT_ALLOWED = "SELECT channel, count(*) FROM groups_of_channels WHERE state = 'allowed' GROUP BY channel"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatState:
    """By channel."""

    troubles: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why it is not served."""
    owners: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many accounts of owners there are."""
    asked: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many groups no owner has decided about."""
    allowed: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many groups an owner has allowed."""


NO_CHATS = ChatState()
