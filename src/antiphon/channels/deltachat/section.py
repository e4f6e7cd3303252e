"""The settings of an account of Delta Chat."""

from typing import Annotated

from pydantic import Field, SecretStr

from antiphon.channels.sections import AccountName, Emoji, PeopleSection, SeveralAccounts
from antiphon.settings.section import secret_from

NAME = "deltachat"
"""The channel's name in keys and places."""
Port = Annotated[int, Field(ge=1, le=65535)]


class DeltaChatAccount(PeopleSection):
    address: str = ""
    """The mailbox of the agents, which nothing else uses: mails are deleted there once they were taken in."""
    name: str = "Antiphon"
    """What people see as the name of the account, and mention it by in groups."""
    password: SecretStr | None = Field(default=None, exclude=True)
    """The mailbox's password. Prefer `password_env`."""
    password_env: str | None = Field(default=None, exclude=True)
    """The environment variable that holds the password."""
    acknowledgement: Emoji = "👀"
    """The emoji with which the account reacts to a message while it answers it: Delta Chat shows no typing. Each
    reaction is a mail. Empty for none."""
    imap_host: str | None = None
    """The server that keeps the mailbox; found by its address unless set."""
    imap_port: Port | None = None
    """Found with the server unless set."""
    smtp_host: str | None = None
    """The server that sends; found by the address unless set."""
    smtp_port: Port | None = None
    """Found with the server unless set."""
    plain: bool = False
    """Without TLS, for servers on this machine. Chats are encrypted all the same."""
    stream_interval_ms: Annotated[int, Field(ge=1_000, le=60_000)] = 3_000
    """The least time between two changes of a reply that is shown while it is written; each is a mail."""

    def key(self) -> str | None:
        return secret_from(self.password, self.password_env)


class DeltaChatSection(SeveralAccounts, DeltaChatAccount):
    accounts: dict[AccountName, DeltaChatAccount] = Field(default_factory=dict[AccountName, DeltaChatAccount])
    """Several accounts by names of your choice, each with these settings; those above hold for all unless it sets
    them."""
