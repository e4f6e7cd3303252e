"""Who may write to a channel."""

from enum import StrEnum


class ChannelAccess(StrEnum):
    """Who may write to a channel: its setting `access`."""

    PAIRING = "pairing"
    """Unknown senders get a code that an owner approves."""
    PUBLIC = "public"
    """Anybody, as a guest."""
    PRIVATE = "private"
    """Only linked people; others get no answer."""
