"""How far an account of a channel was read, in the words of its platform. Contract: channels 1."""

from msgspec import Struct


class Position(Struct, frozen=True):
    """What an adapter asks its platform to go on after.

    Of two positions the one that comes later is later, as with tokens that only the platform can read. An adapter whose
    platform may repeat what is older overrides `is_after`.
    """

    text: str
    """The platform's, as it goes back to it."""
    chat: str | None = None
    """The chat in which it counts; None if it counts for the whole account."""

    def is_after(self, stored: str) -> bool:
        """Whether it is later than the one that is stored, so that it takes its place."""
        return self.text != stored


class NumberedPosition(Position, frozen=True):
    """One that grows with each message, as an integer."""

    def is_after(self, stored: str) -> bool:
        return not stored.isdecimal() or int(self.text) > int(stored)
