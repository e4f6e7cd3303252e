"""Everything of one bot. Importing this module imports the client library: only programs with a bot do it."""

from msgspec.structs import replace
from telegram.error import TelegramError

from antiphon.channels.greetings import FoundAccount, GreetingChannel
from antiphon.channels.kind import Inside
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
from antiphon.domain.home_key import HomeKey

LOOK_SECONDS = 4
"""Long enough for another program that polls to ask again, which ends the look."""


class TelegramBot(GreetingChannel):
    """A bot with its connections."""

    channel, title, accounts = NAME, "Telegram", (ACCOUNT,)
    failures = (TelegramError,)

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

    async def find(self, account: str) -> FoundAccount:
        address = f"https://t.me/{(await self._client.find_me()).username}"
        return FoundAccount(name=address, code_link=f"{address}?start=")

    async def look_at_bot(self, *, may_poll: bool) -> BotLook:
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
