"""The settings of apps in workspaces of Slack."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, SecretStr

from antiphon.channels.sections import AccountName, GroupSection, PeopleSection, SeveralAccounts
from antiphon.settings.addresses import WebAddress
from antiphon.settings.section import secret_from

NAME = "slack"
TITLE = "Slack"
REACTIONS = {"👀": "eyes", "👍": "+1", "🤔": "thinking_face", "⏳": "hourglass_flowing_sand", "✅": "white_check_mark"}
"""Emojis with which an app can react, and Slack's names for them."""
COMMAND = "/antiphon"
"""The slash command under which an app offers the commands of chats."""


class ReplyPlace(StrEnum):
    """Where a mention at the top of a channel is answered."""

    THREAD = "thread"
    """In a thread under it, which is a session of its own."""
    CHANNEL = "channel"
    """Beside it, in the channel's own session."""


class SlackMode(StrEnum):
    """How events, commands and presses come in."""

    SOCKET = "socket"
    """Over connections that the gateway opens, so that nothing needs to be reachable from outside."""
    HTTP = "http"
    """Slack posts them, signed, to the gateway at `gateway.public_url`."""


class SlackAccount(PeopleSection):
    """An app in one workspace."""

    mode: SlackMode = SlackMode.SOCKET
    """How messages come in: over connections that the gateway opens (`app_token`), or posted and signed by Slack to
    `gateway.public_url` (`signing_secret`)."""

    token: SecretStr | None = Field(default=None, exclude=True)
    """The token of the app's bot, which begins with `xoxb-`. Prefer `token_env`, or `ANTIPHON_SLACK_TOKEN`."""
    token_env: str | None = Field(default=None, exclude=True)
    """The environment variable that holds the bot's token."""
    app_token: SecretStr | None = Field(default=None, exclude=True)
    """The token of the app itself, which begins with `xapp-`, with the right `connections:write`. Prefer
    `app_token_env`, or `ANTIPHON_SLACK_APP_TOKEN`."""
    app_token_env: str | None = Field(default=None, exclude=True)
    """The environment variable that holds the app's token."""
    signing_secret: SecretStr | None = Field(default=None, exclude=True)
    """The secret with which Slack signs what it posts. Prefer `signing_secret_env`, or
    `ANTIPHON_SLACK_SIGNING_SECRET`."""
    signing_secret_env: str | None = Field(default=None, exclude=True)
    """The environment variable that holds the signing secret."""
    groups: dict[str, GroupSection] = Field(default_factory=dict[str, GroupSection])
    """Channels that the app may answer in, by the id that Slack gives them, such as `C0123456789`."""
    replies: ReplyPlace = ReplyPlace.THREAD
    """Where a mention at the top of a channel is answered: in a thread under it, which is a session of its own, or
    beside it in the channel."""
    stream_interval_ms: Annotated[int, Field(ge=500, le=60_000)] = 1_500
    """The least time between two changes of a reply that is shown while it is written."""
    api_base: WebAddress | None = None
    """The address of another server of the Web API, such as a proxy of your own; Slack's unless set."""

    def key(self) -> str | None:
        return secret_from(self.token, self.token_env)

    def app_key(self) -> str | None:
        return secret_from(self.app_token, self.app_token_env)

    def signing_key(self) -> str | None:
        return secret_from(self.signing_secret, self.signing_secret_env)


class SlackSection(SeveralAccounts, SlackAccount):
    accounts: dict[AccountName, SlackAccount] = Field(default_factory=dict[AccountName, SlackAccount])
    """Several workspaces by names of your choice, each with these settings; those above hold for all unless one sets
    them."""
