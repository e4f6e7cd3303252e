"""The channel `discord`: what the package declares. The client library is imported only for a bot."""

from datetime import timedelta
from typing import TYPE_CHECKING

from antiphon.channels.abilities import Ability
from antiphon.channels.discord.section import DiscordAccount, DiscordSection
from antiphon.channels.discord.settings import NAME, DiscordSettings
from antiphon.channels.kind import Given
from antiphon.channels.platform import PlatformKind
from antiphon.channels.sections import place_of
from antiphon.clock import Clock
from antiphon.domain.chat_form import ChatForm
from antiphon.domain.errors import Invalid
from antiphon.domain.keys import ChatType

if TYPE_CHECKING:
    from antiphon.channels.discord.bots import DiscordBots

VARIABLE = "ANTIPHON_DISCORD_TOKEN"


class DiscordKind(PlatformKind[DiscordSection, tuple[DiscordSettings, ...]]):
    name = NAME
    title = "Discord"
    section = DiscordSection
    rooms = "channel"
    about = "Bots of Discord, through which people talk to agents; none unless set."
    chats = ChatForm(group_type=ChatType.CHANNEL, is_invited=False, chat_id_name="discord_channel_id")
    abilities = frozenset(Ability) - {Ability.FIRSTS}

    def read(self, given: Given[DiscordSection]) -> tuple[DiscordSettings, ...]:
        """Raises `Invalid` without a usable token, and for a token that two bots have."""
        section, found = given.section, dict[str, DiscordSettings]()
        if not section.model_fields_set - {"thread_bindings"}:
            return ()  # settings of others that are read, without a bot
        for name, account in given.accounts(DiscordAccount).items():
            setting = given.origins.where(given.origins.spelt(*place_of(given.place, section, name), "token"))
            if (id := account.own_id) is None:
                raise Invalid(
                    f"{setting}: Discord has no usable token. Reset it in the developer portal (Bot, Reset "
                    f"Token), and set the variable {account.token_env or VARIABLE}.",
                    code="invalid_config",
                )
            if id in found:
                raise Invalid(
                    f"{setting}: The bots {found[id].account!r} and {name!r} have one token. "
                    "Make a bot for each in the developer portal.",
                    code="invalid_config",
                )
            found[id] = DiscordSettings(
                account=name,
                token=account.key() or "",
                api_base=None if section.api_base is None else section.api_base.rstrip("/"),
                stream_interval=timedelta(milliseconds=account.stream_interval_ms),
                catch_up=account.catch_up,
            )
        return tuple(found.values())

    def open(self, settings: tuple[DiscordSettings, ...], clock: Clock) -> "DiscordBots":
        """Raises `Invalid` if the client library is not installed."""
        with self.needing_library():
            from antiphon.channels.discord.bots import DiscordBots
        return DiscordBots(settings, clock)


DISCORD = DiscordKind()
