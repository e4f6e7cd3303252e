"""Serves the bot: polls its updates, or lets Telegram post them. Contract: channels 1."""

from datetime import timedelta

import anyio
from telegram import BotCommand
from telegram.error import Conflict, InvalidToken, RetryAfter, TelegramError

from antiphon.channels.account_loop import PAUSES, AccountLoop, Pauses, PlatformTrouble
from antiphon.channels.telegram.client import TelegramClient, wished_pause
from antiphon.channels.telegram.files import fetch_file
from antiphon.channels.telegram.intake import TelegramIntake
from antiphon.channels.telegram.settings import (
    ACCOUNT,
    NAME,
    OTHER_POLLS,
    UNREACHABLE,
    WANTED,
    WEBHOOK_IS_SET,
    WEBHOOK_PATH,
    WRONG_TOKEN,
    TelegramMode,
    TelegramSettings,
)
from antiphon.channels.telegram.updates import Me, position_of
from antiphon.clock import Clock
from antiphon.domain.commands import LANGUAGES, commands_for
from antiphon.domain.inbound import SentFile
from antiphon.engine.chats.accounts import AccountLease, Accounts
from antiphon.engine.chats.reception import Reception

QUIET = timedelta(days=5)
"""After a week without updates Telegram numbers them anew, perhaps lower; then it is asked for all that wait."""


class TelegramLoop(AccountLoop):
    title = "Telegram"

    def __init__(
        self,
        settings: TelegramSettings,
        client: TelegramClient,
        reception: Reception,
        accounts: Accounts,
        *,
        clock: Clock,
        secret: str,
        pauses: Pauses = PAUSES,
    ) -> None:
        """`secret` is what Telegram sends with each update that it posts."""
        super().__init__(reception, accounts, clock, name=(NAME, ACCOUNT), pauses=pauses)
        self._settings = settings
        self._client = client
        self._updates = TelegramIntake(client, reception)
        self._secret = secret
        self._me: Me | None = None
        self._offset: int | None = None
        self._asked = clock.monotonic()

    async def open(self) -> None:
        await self._client.open()

    async def begin(self, lease: AccountLease) -> None:
        """Learns who the bot is, registers its commands, and sets or deletes its webhook."""
        bot, me = self._client.bot, await self._client.find_me()
        # The first question has no offset: what was stored and not confirmed comes again, and is recognised.
        self._me, self._offset, self._asked = me, None, self.clock.monotonic()
        await self.store_name(lease, platform_id=str(me.id), name=me.username)
        url = self._settings.webhook_url
        if self._settings.mode is TelegramMode.WEBHOOK:
            assert url is not None
            # One at a time, so that messages come in their order.
            await bot.set_webhook(url, secret_token=self._secret, allowed_updates=list(WANTED), max_connections=1)
        elif (await self._client.find_hook()).url.endswith(WEBHOOK_PATH):
            await bot.delete_webhook()  # it is Antiphon's own, of an earlier setting
        for language in (None, *LANGUAGES):
            texts = [BotCommand(name, text) for name, text in commands_for(language)]
            await bot.set_my_commands(texts, language_code=language)

    async def listen(self, lease: AccountLease) -> None:
        if self._settings.mode is TelegramMode.WEBHOOK:
            await anyio.sleep_forever()
        assert self._me is not None
        while True:
            if self.clock.monotonic() - self._asked > QUIET.total_seconds():
                self._offset = None
            updates = await self._client.fetch_updates(self._offset)
            await self.works()
            for update in updates:
                self._asked = self.clock.monotonic()
                await self._updates.take(update, self._me, lease)
                position = position_of(update)
                if position is not None:
                    self._offset = position + 1

    async def fetch(self, file: SentFile, most: int) -> bytes | None:
        return await fetch_file(self._client, file, most)

    def trouble_of(self, error: Exception) -> PlatformTrouble | None:
        if not isinstance(error, TelegramError):
            return None
        return PlatformTrouble(text_of(error), wished_pause(error) if isinstance(error, RetryAfter) else None)


def text_of(error: TelegramError) -> str:
    """Why the bot is not served."""
    match error:
        case InvalidToken():
            return WRONG_TOKEN
        case Conflict():
            return WEBHOOK_IS_SET if "webhook" in error.message.lower() else OTHER_POLLS
        case _:
            return UNREACHABLE
