"""Everything of one bot. Importing this module imports the client library: only programs with a bot do it."""

import anyio
from telegram.error import TelegramError

from antiphon.channels.telegram.channel import TelegramChannel
from antiphon.channels.telegram.client import TelegramClient
from antiphon.channels.telegram.loop import TelegramLoop
from antiphon.channels.telegram.settings import TelegramMode, TelegramSettings
from antiphon.channels.telegram.webhook import TelegramWebhook
from antiphon.clock import Clock
from antiphon.domain.commands import LANGUAGES, commands_for
from antiphon.domain.home_key import HomeKey
from antiphon.engine.chats.accounts import Accounts
from antiphon.engine.chats.reception import Reception

_NAME_SECONDS = 5.0


class TelegramBot:
    """A bot with its connections, which `channel.aclose` closes."""

    def __init__(self, settings: TelegramSettings) -> None:
        self._settings = settings
        self._client = TelegramClient(settings)
        self.channel = TelegramChannel(self._client)

    def loop(self, reception: Reception, accounts: Accounts, clock: Clock, home_key: HomeKey) -> TelegramLoop:
        return TelegramLoop(
            self._settings,
            self._client,
            reception,
            accounts,
            clock=clock,
            secret=_secret_of(home_key),
            commands=commands_for,
            languages=LANGUAGES,
        )

    def webhook(self, reception: Reception, home_key: HomeKey) -> TelegramWebhook | None:
        """Takes in what Telegram posts; None if the bot is polled."""
        if self._settings.mode is not TelegramMode.WEBHOOK:
            return None
        return TelegramWebhook(self._client, reception, _secret_of(home_key))

    async def find_name(self) -> str | None:
        """The bot's name on Telegram; None if Telegram does not give it soon."""
        try:
            with anyio.move_on_after(_NAME_SECONDS):
                return (await self._client.bot.get_me()).username
        except TelegramError:
            return None
        return None


def _secret_of(home_key: HomeKey) -> str:
    """The same in every process of the home, so that any of them may set and check it."""
    return home_key.subkey("telegram-webhook").hex()
