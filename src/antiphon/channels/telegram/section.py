"""The settings of a bot of Telegram."""

from typing import Annotated

from pydantic import Field, SecretStr

from antiphon.channels.sections import GroupSection, PeopleSection
from antiphon.channels.telegram.settings import TelegramMode
from antiphon.domain.joining import JoinWaits
from antiphon.settings.addresses import WebAddress
from antiphon.settings.section import secret_from


class TelegramSection(PeopleSection):
    token: SecretStr | None = Field(default=None, exclude=True)
    """The bot's token from @BotFather. Prefer `token_env`, or the variable `ANTIPHON_TELEGRAM_TOKEN`."""
    token_env: str | None = Field(default=None, exclude=True)
    """The environment variable that holds the token."""
    mode: TelegramMode = TelegramMode.POLL
    """How messages come in: one process asks Telegram for them, or Telegram posts them to `gateway.public_url`."""
    groups: dict[str, GroupSection] = Field(default_factory=dict[str, GroupSection])
    """Groups that the bot may answer in, by the id that Telegram gives them, such as `-1001234567890`."""
    stream_interval_ms: Annotated[int, Field(ge=500, le=60_000)] = 1_500
    """The least time between two changes of a reply that is shown while it is written."""
    text_wait_ms: Annotated[int, Field(ge=0, le=2_000)] = 300
    """How long a text in a direct chat waits for a forward that it may comment. Albums, long texts and forwards wait
    1.5 s for their next part in any case."""
    api_base: WebAddress | None = None
    """The address of another server of the Bot API, such as one of your own; Telegram's unless set."""

    def key(self) -> str | None:
        """The token set here or named by `token_env`."""
        return secret_from(self.token, self.token_env)

    @property
    def own_id(self) -> str | None:
        """A bot's token begins with the id of its account."""
        token = self.key()
        return None if token is None else token.partition(":")[0]

    @property
    def join_waits(self) -> JoinWaits:
        return JoinWaits(text_ms=self.text_wait_ms)
