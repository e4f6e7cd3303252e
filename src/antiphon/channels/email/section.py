"""The settings of a mailbox."""

from typing import Annotated

from pydantic import Field, SecretStr

from antiphon.channels.sections import AccountName, PeopleSection, SeveralAccounts
from antiphon.domain.voice import Interim
from antiphon.settings.section import secret_from

NAME = "email"
Port = Annotated[int, Field(ge=1, le=65535)]


class EmailAccount(PeopleSection):
    address: str = ""
    """The address of the agents, such as `agents@example.org`."""
    name: str = "Antiphon"
    """What people see beside the address."""
    user: str | None = None
    """The name with which the mailbox is opened; the address unless set."""
    password: SecretStr | None = Field(default=None, exclude=True)
    """The mailbox's password; some providers make a password for programs. Prefer `password_env`."""
    password_env: str | None = Field(default=None, exclude=True)
    """The environment variable that holds the password."""
    imap_host: str = ""
    """The server that keeps the mailbox."""
    imap_port: Port = 993
    """993 with TLS from the start, 143 with STARTTLS."""
    smtp_host: str | None = None
    """The server that sends; `imap_host` unless set."""
    smtp_port: Port = 465
    """465 with TLS from the start, any other with STARTTLS."""
    plain: bool = False
    """Without TLS, for servers on this machine."""
    ca_file: str | None = None
    """A file with the certificates to trust, for servers with one of your own; the system's unless set."""
    authserv_id: str = ""
    """The name under which the receiving server notes in `Authentication-Results` whether a sender is proven. Mails
    without such a note are not answered."""
    folder: str = "INBOX"
    """The folder that is read."""
    interim: Interim | None = Interim.DROP
    """Whether texts beside the calls of a turn are sent before its reply, each as a mail of its own."""

    @property
    def own_id(self) -> str | None:
        return self.address.lower() or None

    @property
    def domain(self) -> str:
        return self.address.lower().rpartition("@")[2]

    @property
    def login(self) -> tuple[str, str]:
        return self.user or self.address, secret_from(self.password, self.password_env) or ""


class EmailSection(SeveralAccounts, EmailAccount):
    accounts: dict[AccountName, EmailAccount] = Field(default_factory=dict[AccountName, EmailAccount])
    """Several mailboxes by names of your choice, each with these settings; those above hold for all unless it sets
    them."""
