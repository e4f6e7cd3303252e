"""The connections with platforms: adapters for accounts, and the entrances for messages of people."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from antiphon.channels.channel import Channel
from antiphon.channels.hook_inbox import HookInbox
from antiphon.channels.hook_settings import HookSettings
from antiphon.channels.telegram.settings import BotLook, TelegramSettings
from antiphon.channels.webhook_inbox import WebhookInbox
from antiphon.channels.webhook_settings import WebhookSettings
from antiphon.clock import Clock
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import ProcessId
from antiphon.engine.chats.accounts import Accounts
from antiphon.engine.chats.reception import Reception
from antiphon.engine.deliveries.replies import Replies
from antiphon.engine.services import Services
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.store.database import Database
from antiphon.store.deliveries import ChannelAccount

if TYPE_CHECKING:
    from antiphon.channels.telegram.bot import TelegramBot
    from antiphon.channels.telegram.loop import TelegramLoop
    from antiphon.channels.telegram.webhook import TelegramWebhook


class Adapters(Struct, frozen=True):
    """What connects this process with platforms."""

    channels: Mapping[ChannelAccount, Channel]
    telegram: "TelegramBot | None"
    """None if no bot is configured."""


class InboundSettings(Struct, frozen=True):
    """The programs that may send signed messages."""

    webhooks: Sequence[WebhookSettings]
    hooks: Sequence[HookSettings]


class Entrances(Struct, frozen=True, kw_only=True):
    """Where messages of people and programs come in."""

    webhook_inbox: WebhookInbox
    hook_inbox: HookInbox
    accounts: Accounts
    reception: Reception
    telegram_loop: "TelegramLoop | None"
    """Polls for updates, if the process runs agents."""
    telegram_webhook: "TelegramWebhook | None"
    """None unless Telegram posts updates to the gateway."""


@asynccontextmanager
async def open_adapters(
    webhooks: Sequence[WebhookSettings],
    telegram: TelegramSettings | None,
    clock: Clock,
    *,
    more: Sequence[Channel] = (),
) -> AsyncGenerator[Adapters]:
    """The adapters of the configured accounts, and `more`; all are closed at the end.

    Raises `Invalid` like `open_telegram`.
    """
    found = _webhook_channels(webhooks, clock)
    bot = None if telegram is None else open_telegram(telegram)
    if bot is not None:
        found.append(bot.channel)
    channels = {ChannelAccount(channel.name, channel.account): channel for channel in (*found, *more)}
    try:
        yield Adapters(channels, bot)
    finally:
        with anyio.CancelScope(shield=True):
            for channel in channels.values():
                await channel.aclose()


def _webhook_channels(webhooks: Sequence[WebhookSettings], clock: Clock) -> list[Channel]:
    if all(webhook.url is None for webhook in webhooks):
        return []
    from antiphon.channels.webhook import WebhookChannel  # its HTTP client takes 40 ms to import

    return [WebhookChannel(webhook, clock) for webhook in webhooks if webhook.url is not None]


def build_entrances(
    adapters: Adapters,
    services: Services,
    inbound: InboundSettings,
    *,
    database: Database,
    workspaces: Workspaces,
    process: ProcessId,
    is_global: bool,
) -> Entrances:
    """The entrances of this process; `is_global` if all messages go to one session."""
    rules, clock, home_key, bot = services.rules, services.clock, services.home_key, adapters.telegram
    accounts = Accounts(database, process, clock)
    reception = Reception(database, rules, workspaces, clock=clock, ids=services.ids)
    replies = Replies(database, rules)
    return Entrances(
        webhook_inbox=WebhookInbox(inbound.webhooks, services, replies, is_global=is_global),
        hook_inbox=HookInbox(inbound.hooks, services, replies),
        accounts=accounts,
        reception=reception,
        telegram_loop=None if bot is None else bot.loop(reception, accounts, clock, home_key),
        telegram_webhook=None if bot is None else bot.webhook(reception, home_key),
    )


def open_telegram(settings: TelegramSettings) -> "TelegramBot":
    """The bot, connected to nothing yet. Raises `Invalid` if the client library is not installed."""
    try:
        from antiphon.channels.telegram.bot import TelegramBot
    except ModuleNotFoundError as error:
        raise Invalid(
            f"Telegram needs a package that is not installed ({error.name}). Install antiphon[telegram].",
            code="package_missing",
        ) from error
    return TelegramBot(settings)


async def look_at_bot(settings: TelegramSettings, *, may_poll: bool) -> BotLook:
    """What Telegram says about the bot; nothing is changed or confirmed. Raises `Invalid` like `open_telegram`.

    Polling shows whether another program polls, and would disturb a gateway that does.
    """
    bot = open_telegram(settings)
    try:
        return await bot.look(may_poll=may_poll)
    finally:
        await bot.channel.aclose()
