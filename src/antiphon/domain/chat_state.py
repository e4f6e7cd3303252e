"""What is known about channels with people in them, for a check of the home."""

from collections.abc import Mapping

from msgspec import Struct, field


class ChatState(Struct, frozen=True, kw_only=True):
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
