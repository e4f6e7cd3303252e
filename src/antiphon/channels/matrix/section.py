"""The settings of accounts of Matrix."""

from typing import Annotated

from pydantic import Field, SecretStr

from antiphon.channels.bridges import BridgeSection
from antiphon.channels.sections import AccountName, ChannelName, GroupSection, PeopleSection, SeveralAccounts
from antiphon.settings.addresses import WebAddress
from antiphon.settings.section import secret_from


class MatrixAccount(PeopleSection):
    homeserver: WebAddress | None = None
    """The address of the homeserver, such as `https://matrix.example.org`."""
    user: str = ""
    """The account of the agents, such as `@antiphon:example.org`."""
    password: SecretStr | None = Field(default=None, exclude=True)
    """Its password, with which a device is made at the first start. Prefer `password_env`."""
    password_env: str | None = Field(default=None, exclude=True)
    """The environment variable that holds the password."""
    token: SecretStr | None = Field(default=None, exclude=True)
    """In place of the password: the access token of a device that no other program uses. Prefer `token_env`."""
    token_env: str | None = Field(default=None, exclude=True)
    """The environment variable that holds the token."""
    groups: dict[str, GroupSection] = Field(default_factory=dict[str, GroupSection])
    """Rooms in which it may answer, by their id, such as `!abc:example.org`."""
    stream_interval_ms: Annotated[int, Field(ge=500, le=60_000)] = 5_000
    """The least time between two changes of a reply that is shown while it is written; in groups twice that.
    Homeservers allow about one message in 5 s unless their settings say more."""
    bridges: dict[ChannelName, BridgeSection] = Field(default_factory=dict[ChannelName, BridgeSection])
    """Bridges on the homeserver, each by the name of the channel that it brings, such as `whatsapp`."""

    def key(self) -> str | None:
        return secret_from(self.token, self.token_env)

    def secret(self) -> str | None:
        return secret_from(self.password, self.password_env)

    @property
    def own_id(self) -> str | None:
        return self.user or None


class MatrixSection(SeveralAccounts, MatrixAccount):
    accounts: dict[AccountName, MatrixAccount] = Field(default_factory=dict[AccountName, MatrixAccount])
    """Several accounts by names of your choice, each with these settings; those above hold for all unless it sets
    them."""
    for_all = frozenset({"bridges"})
