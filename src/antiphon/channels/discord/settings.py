"""The settings of a bot, and why one cannot be served."""

from dataclasses import dataclass, field
from datetime import timedelta

from antiphon.channels.sections import CatchUpSection

NAME = "discord"
"""The channel's name in keys and places."""
API = "https://discord.com/api/v10"
LONGEST_TEXT = 2_000
"""The longest text of one message, in characters."""
FILE_HOSTS = ("cdn.discordapp.com", "media.discordapp.net")
"""Where Discord keeps the files of messages."""

# Why a bot cannot be served.
WRONG_TOKEN = "The bot's token is wrong or was revoked. Reset it in the developer portal, and set the new one."
INTENTS_REFUSED = (
    "Discord refuses the intents of this bot. Switch the message content intent on: developer portal, Bot, "
    "Privileged Gateway Intents."
)
TOO_MANY_SERVERS = "The bot is in more servers than one connection may serve (2,500). Use a bot of its own."
STARTS_SPENT = "The bot has begun too many connections today, so Discord would reset its token. It waits."
FLOODED = "More messages come in than can be stored. The bot connects again and goes on after the last stored one."
UNREACHABLE = "Discord cannot be reached."


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordSettings:
    """One bot."""

    account: str
    token: str = field(repr=False)
    api_base: str | None = None
    """The address of another server of the interface; None for Discord's own."""
    stream_interval: timedelta = timedelta(milliseconds=1500)
    """The least time between two changes of a reply that is being written."""
    catch_up: CatchUpSection = field(default_factory=CatchUpSection)
    """What is taken in of the messages of an outage."""
