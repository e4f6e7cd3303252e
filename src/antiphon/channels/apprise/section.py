"""The settings of accounts of Apprise."""

from pydantic import Field, SecretStr

from antiphon.channels.sections import AccountName, NotifyingSection, SeveralAccounts
from antiphon.settings.section import secret_from

NAME = "apprise"
"""The channel's name in keys and places."""


class AppriseAccount(NotifyingSection):
    url: SecretStr | None = Field(default=None, exclude=True)
    """The service and its secrets, as Apprise writes them, such as `ntfys://host/topic`. Prefer `url_env`."""
    url_env: str | None = Field(default=None, exclude=True)
    """The environment variable that holds the url."""

    def key(self) -> str | None:
        """The url set here or named by `url_env`."""
        return secret_from(self.url, self.url_env)


class AppriseSection(SeveralAccounts, AppriseAccount):
    accounts: dict[AccountName, AppriseAccount] = Field(default_factory=dict[str, AppriseAccount])
