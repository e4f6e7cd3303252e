"""The settings of the bot."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from msgspec import Struct

NAME = "telegram"
"""The channel's name in keys and places."""
ACCOUNT = "default"
"""The one account that there is."""
LONGEST_TEXT = 4096
"""The longest text of one message, in units of UTF-16."""
WEBHOOK_PATH = f"/channels/{NAME}/{ACCOUNT}"
"""The path at the gateway that Telegram posts updates to."""
SECRET_HEADER = "x-telegram-bot-api-secret-token"
_EMOJIS = (
    "👍 👎 ❤ 🔥 🥰 👏 😁 🤔 🤯 😱 🤬 😢 🎉 🤩 🤮 💩 🙏 👌 🕊 🤡 🥱 🥴 😍 🐳 ❤️‍🔥 🌚 🌭 💯 🤣 ⚡ 🍌 🏆 💔 🤨 "
    "😐 🍓 🍾 💋 🖕 😈 😴 😭 🤓 👻 👨‍💻 👀 🎃 🙈 😇 😨 🤝 ✍ 🤗 🫡 🎅 🎄 ☃ 💅 🤪 🗿 🆒 💘 🙉 🦄 😘 💊 🙊 😎 "
    "👾 🤷‍♂️ 🤷 🤷‍♀️ 😡"
)
REACTIONS = tuple(_EMOJIS.split(" "))
"""The emojis with which Telegram lets bots react."""
WANTED = ("message", "callback_query", "my_chat_member")
"""The kinds of updates that are asked for."""

# Why a bot cannot be served.
WRONG_TOKEN = "The bot's token is wrong or was revoked. Get one from @BotFather and set it."
OTHER_POLLS = "Another program polls with this bot's token. Stop it, or give Antiphon a bot of its own."
WEBHOOK_IS_SET = "A webhook is set for this bot, so it cannot be polled. Delete it, or set channels.telegram.mode."
UNREACHABLE = "Telegram cannot be reached."


class TelegramMode(StrEnum):
    """How updates come in."""

    POLL = "poll"
    """One process asks for them."""
    WEBHOOK = "webhook"
    """Telegram posts them to the gateway, which must be reachable under `gateway.public_url`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramSettings:
    """One bot."""

    token: str = field(repr=False)
    mode: TelegramMode = TelegramMode.POLL
    public_url: str | None = None
    """The gateway's address for Telegram; set if the mode is `webhook`."""
    api_base: str | None = None
    """The address of another server of the Bot API; None for Telegram's own."""
    stream_interval: timedelta = timedelta(milliseconds=1500)
    """The least time between two changes of a reply that is being written."""

    @property
    def webhook_url(self) -> str | None:
        """The address that Telegram posts to; None without a public address."""
        return None if self.public_url is None else self.public_url.rstrip("/") + WEBHOOK_PATH


class BotLook(Struct, frozen=True, kw_only=True):
    """What Telegram says about a bot."""

    name: str = ""
    reads_groups: bool = False
    """False in privacy mode."""
    other_webhook: str | None = None
    """The address that updates are posted to, if it is not Antiphon's own."""
    trouble: str | None = None
    """Why the bot cannot be served."""
