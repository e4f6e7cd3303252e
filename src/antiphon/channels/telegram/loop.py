"""Serves the bot: takes its updates in while this process holds the lease of the account. Contract: channels 1."""

import logging
from datetime import timedelta
from typing import NamedTuple

import anyio
from telegram import BotCommand
from telegram.error import Conflict, InvalidToken, RetryAfter, TelegramError

from antiphon.channels.telegram.client import TelegramClient, wished_pause
from antiphon.channels.telegram.files import with_files
from antiphon.channels.telegram.intake import Intake
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
from antiphon.domain.errors import Unavailable
from antiphon.domain.inbound import Inbound
from antiphon.engine.chats.accounts import RENEWAL, AccountLease, Accounts
from antiphon.engine.chats.held import HeldMessages
from antiphon.engine.chats.reception import Reception
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

QUIET = timedelta(days=5)
"""After a week without updates Telegram numbers them anew, perhaps lower; then it is asked for all that wait."""


class Pauses(NamedTuple):
    """After failures, each twice as long as the one before."""

    first: timedelta
    longest: timedelta


PAUSES = Pauses(timedelta(milliseconds=500), timedelta(seconds=30))


class TelegramLoop:
    """Runs in each process that may serve the bot; one of them does."""

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
        self._settings = settings
        self._client = client
        self._intake = Intake(client, reception)
        self._accounts = accounts
        self._held = HeldMessages(reception, clock)
        self._clock = clock
        self._secret = secret
        self._trouble: str | None = None
        self._serving = Trouble(logger, "Serving the bot", action="bot_failed", means="Its chats wait.")
        self._pauses = pauses
        self._pause = pauses.first

    async def run(self) -> None:
        """Serves until cancelled, whenever no other process does; then others may."""
        while True:
            try:
                await self._client.open()
                await self._accounts.hold(NAME, ACCOUNT, self._hold)
            except Exception as error:  # a bug of ours must not end the gateway
                self._serving.failed(error, channel=NAME)
                await anyio.sleep(RENEWAL.total_seconds())

    async def _hold(self, lease: AccountLease) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._held.serve, lease, self._with_files)
            await self._serve(lease)

    async def _with_files(self, inbound: Inbound) -> Inbound:
        return await with_files(self._client, inbound)

    async def _serve(self, lease: AccountLease) -> None:
        while True:
            try:
                me = await self._begin(lease)
                break
            except TelegramError as error:
                await self._wait_after(error)
        await self._works()
        if self._settings.mode is TelegramMode.WEBHOOK:
            await anyio.sleep_forever()
        await self._poll(lease, me)

    async def _begin(self, lease: AccountLease) -> Me:
        """Learns who the bot is, registers its commands, and sets or deletes its webhook."""
        bot = self._client.bot
        me = await self._client.find_me()
        await self._store(lease, me)
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
        return me

    async def _store(self, lease: AccountLease, me: Me) -> None:
        while True:
            try:
                await self._accounts.note_name(lease, platform_id=str(me.id), name=me.username)
                return
            except Unavailable:
                await anyio.sleep(RENEWAL.total_seconds())

    async def _poll(self, lease: AccountLease, me: Me) -> None:
        """The first question has no offset: what was stored and not confirmed comes again, and is recognised."""
        offset: int | None = None
        asked = self._clock.monotonic()
        while True:
            if self._clock.monotonic() - asked > QUIET.total_seconds():
                offset = None
            try:
                updates = await self._client.fetch_updates(offset)
            except TelegramError as error:
                await self._wait_after(error)
                continue
            await self._works()
            for update in updates:
                asked = self._clock.monotonic()
                await self._intake.take(update, me, lease)
                position = position_of(update)
                if position is not None:
                    offset = position + 1

    async def _wait_after(self, error: TelegramError) -> None:
        """Notes what is wrong and waits: longer each time, or as long as Telegram says."""
        await self._note(trouble_of(error))
        pause = self._pause
        if isinstance(error, RetryAfter):
            pause = wished_pause(error)
        self._pause = min(2 * self._pause, self._pauses.longest)
        await anyio.sleep(pause.total_seconds())

    async def _works(self) -> None:
        self._serving.worked()
        self._pause = self._pauses.first
        await self._note(None)

    async def _note(self, trouble: str | None) -> None:
        """Logs and stores a trouble once when it begins, and once when it is over."""
        if trouble == self._trouble:
            return
        if trouble is None:
            logger.warning("Telegram works again", extra={"action": "telegram_works"})
        else:
            logger.warning("Telegram does not work", extra={"action": "telegram_trouble", "trouble": trouble})
        try:
            await self._accounts.note_trouble(NAME, ACCOUNT, trouble)
        except Unavailable:
            return  # the next failure, or the next success, tries again
        self._trouble = trouble


def trouble_of(error: TelegramError) -> str:
    match error:
        case InvalidToken():
            return WRONG_TOKEN
        case Conflict():
            return WEBHOOK_IS_SET if "webhook" in error.message.lower() else OTHER_POLLS
        case _:
            return UNREACHABLE
