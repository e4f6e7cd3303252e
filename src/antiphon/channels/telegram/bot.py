"""Everything of one bot. Importing this module imports the client library: only programs with a bot do it."""

import anyio
from msgspec.structs import replace
from telegram.error import TelegramError

from antiphon.channels.kind import Greeting, Inside, OpenChannel
from antiphon.channels.telegram.channel import TelegramChannel
from antiphon.channels.telegram.client import TelegramClient
from antiphon.channels.telegram.loop import TelegramLoop, text_of
from antiphon.channels.telegram.settings import (
    ACCOUNT,
    NAME,
    WEBHOOK_IS_SET,
    WEBHOOK_PATH,
    BotLook,
    TelegramMode,
    TelegramSettings,
)
from antiphon.channels.telegram.webhook import TelegramWebhook
from antiphon.domain.actor import OWNER
from antiphon.domain.home_key import HomeKey
from antiphon.engine.services import Services

_NAME_SECONDS = 5.0
LOOK_SECONDS = 4
"""Long enough for another program that polls to ask again, which ends the look."""


class TelegramBot(OpenChannel):
    """A bot with its connections."""

    def __init__(self, settings: TelegramSettings) -> None:
        self._settings = settings
        self._client = TelegramClient(settings)
        self.senders = (TelegramChannel(self._client, settings.stream_interval),)

    async def serve(self, inside: Inside) -> None:
        await self.loop(inside).run()

    def loop(self, inside: Inside) -> TelegramLoop:
        services = inside.services
        return TelegramLoop(
            self._settings,
            self._client,
            inside.reception,
            inside.accounts,
            clock=services.clock,
            secret=_secret_of(services.home_key),
        )

    def receiver(self, inside: Inside) -> TelegramWebhook | None:
        """Takes in what Telegram posts; None if the bot is polled."""
        if self._settings.mode is not TelegramMode.WEBHOOK:
            return None
        return TelegramWebhook(self._client, inside.reception, _secret_of(inside.services.home_key))

    async def greet(self, services: Services, *, command: str, may_show_code: bool) -> list[Greeting]:
        """The bot's address; with a code for the owner's account, until one is linked."""
        name = await self.find_name()
        if name is None:
            return [Greeting("Telegram does not answer for the bot yet; `antiphon doctor` says why.", is_warning=True)]
        address = f"https://t.me/{name}"
        if await services.links.has_owner(NAME, ACCOUNT):
            return [Greeting(f"Telegram: {address}")]
        if not may_show_code:
            return [Greeting(f"Telegram: no owner yet. `{command}` prints a code; send `/link CODE yes` to {address}.")]
        code = await services.links.make_code(OWNER)
        text = "Telegram (good once, for an hour): open this link on your phone, and send what the bot asks for:"
        return [Greeting(text, f"{address}?start={code.code}")]

    async def find_name(self) -> str | None:
        """The bot's name on Telegram; None if Telegram does not give it soon."""
        try:
            with anyio.move_on_after(_NAME_SECONDS):
                return (await self._client.find_me()).username or None
        except TelegramError:
            return None
        return None

    async def look(self, *, may_poll: bool) -> BotLook:
        """What Telegram says about the bot; nothing is changed or confirmed."""
        client, settings = self._client, self._settings
        try:
            me, hook = await client.find_me(), await client.find_hook()
            is_own = hook.url.endswith(WEBHOOK_PATH)
            look = BotLook(
                name=me.username,
                reads_groups=me.can_read_all_group_messages,
                other_webhook=hook.url if hook.url and not is_own else None,
            )
            if settings.mode is TelegramMode.WEBHOOK:
                said = hook.last_error_message
                return replace(look, trouble=f"Telegram could not post updates: {said[:200]}") if said else look
            if look.other_webhook is not None:
                return replace(look, trouble=WEBHOOK_IS_SET)
            if may_poll:
                await self._client.fetch_updates(None, wait_seconds=LOOK_SECONDS)
        except TelegramError as error:
            return BotLook(trouble=text_of(error))
        return look


def _secret_of(home_key: HomeKey) -> str:
    """The same in every process of the home, so that any of them may set and check it."""
    return home_key.subkey("telegram-webhook").hex()
