"""The settings of bots of Discord."""

import base64
import re
from typing import Annotated, ClassVar

from pydantic import Field, SecretStr

from antiphon.channels.sections import AccountName, PeopleSection, SeveralAccounts
from antiphon.domain.joining import JoinWaits
from antiphon.settings.addresses import WebAddress
from antiphon.settings.section import secret_from

_TOKEN = re.compile(r"(?:[A-Za-z0-9_-]{2,4}){6,10}\.[A-Za-z0-9_-]{4,10}\.[A-Za-z0-9_-]{20,120}")


class DiscordAccount(PeopleSection):
    token: SecretStr | None = Field(default=None, exclude=True)
    """The bot's token from the developer portal. Prefer `token_env`, or the variable `ANTIPHON_DISCORD_TOKEN`."""
    token_env: str | None = Field(default=None, exclude=True)
    """The environment variable that holds the token."""
    stream_interval_ms: Annotated[int, Field(ge=500, le=60_000)] = 1_500
    """The least time between two changes of a reply that is shown while it is written."""

    def key(self) -> str | None:
        """The token set here or named by `token_env`."""
        return secret_from(self.token, self.token_env)

    @property
    def own_id(self) -> str | None:
        """A bot's token begins with the id of its account; None for what is no token."""
        token = self.key() or ""
        if not _TOKEN.fullmatch(token):
            return None
        head = token.partition(".")[0]
        id = base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)).decode("ascii", "replace")
        return id if id.isdecimal() else None

    @property
    def join_waits(self) -> JoinWaits:
        """A comment comes after what it forwards."""
        return JoinWaits(text_ms=0)


class DiscordSection(SeveralAccounts, DiscordAccount):
    accounts: dict[AccountName, DiscordAccount] = Field(default_factory=dict[str, DiscordAccount])
    """Several bots by names of your choice, each with these settings; those above hold for all unless it sets them."""
    api_base: WebAddress | None = None
    """The address of another server of Discord's interface, for all bots; Discord's unless set."""
    for_all: ClassVar[frozenset[str]] = frozenset({"api_base"})
