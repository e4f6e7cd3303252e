"""What is known about channels with people in them, for a check of the home."""

from collections.abc import Mapping

from msgspec import Struct, field

from antiphon.domain.session import DEFAULT_ACCOUNT


class ChatState(Struct, frozen=True, kw_only=True):
    """By channel."""

    troubles: Mapping[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """Why it is not served, by channel and account."""
    owners: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many accounts of owners there are."""
    asked: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many groups no owner has decided about."""
    allowed: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many groups an owner has allowed."""

    def trouble(self, channel: str, account: str | None = None) -> str | None:
        """Why the account is not served; of any account of the channel, unless one is named. None if all are."""
        found = [(name, said) for (where, name), said in self.troubles.items() if where == channel]
        if account is None:
            return found[0][1] if found else None
        # What makes the whole channel fail is noted of its first account.
        broken = next((said for name, said in found if name == DEFAULT_ACCOUNT), None)
        return next((said for name, said in found if name == account), broken)


NO_CHATS = ChatState()
