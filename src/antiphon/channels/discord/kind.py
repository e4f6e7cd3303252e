"""The channel `discord`: what the package declares. The client library is imported only for a bot."""

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from antiphon.channels.abilities import Ability
from antiphon.channels.discord.section import DiscordAccount, DiscordSection
from antiphon.channels.discord.settings import NAME, DiscordSettings
from antiphon.channels.kind import ChannelKind, Given
from antiphon.channels.sections import accounts_of, place_of
from antiphon.clock import Clock, SystemClock
from antiphon.domain.chat_form import ChatForm
from antiphon.domain.chat_state import ChatState
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.domain.errors import Invalid
from antiphon.domain.keys import ChatType

if TYPE_CHECKING:
    from antiphon.channels.discord.bots import DiscordBots

VARIABLE = "ANTIPHON_DISCORD_TOKEN"


class DiscordKind(ChannelKind[DiscordSection, tuple[DiscordSettings, ...]]):
    name = NAME
    title = "Discord"
    section = DiscordSection
    about = "Bots of Discord, through which people talk to agents; none unless set."
    chats = ChatForm(group_type=ChatType.CHANNEL, is_invited=False, chat_id_name="discord_channel_id")
    abilities = frozenset(Ability) - {Ability.FIRSTS}

    def read(self, given: Given[DiscordSection]) -> tuple[DiscordSettings, ...]:
        """Raises `Invalid` without a usable token, and for a token that two bots have."""
        section, found = given.section, dict[str, DiscordSettings]()
        if not section.model_fields_set - {"thread_bindings"}:
            return ()  # settings of others that are read, without a bot
        for name, account in accounts_of(section).items():
            assert isinstance(account, DiscordAccount)
            if (id := account.own_id) is None:
                raise Invalid(
                    f"{_at(given, name)}: Discord has no usable token. Reset it in the developer portal (Bot, Reset "
                    f"Token), and set the variable {account.token_env or VARIABLE}.",
                    code="invalid_config",
                )
            if id in found:
                raise Invalid(
                    f"{_at(given, name)}: The bots {found[id].account!r} and {name!r} have one token. "
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
        try:
            from antiphon.channels.discord.bots import DiscordBots
        except ModuleNotFoundError as error:
            raise Invalid(
                f"Discord needs a package that is not installed ({error.name}). Install antiphon[discord].",
                code="package_missing",
            ) from error
        return DiscordBots(settings, clock)

    def check(
        self, given: Given[DiscordSection] | None, chats: ChatState, *, is_running: bool
    ) -> Iterator[CheckResult]:
        """Asks Discord about each bot, and connects none. What a running gateway found is in `chats`."""
        if given is None:
            return
        try:
            bots = self.open(self.read(given), SystemClock())
        except Invalid as error:
            yield CheckResult(NAME, Grade.BROKEN, error.message, "Until this is mended, nothing starts.")
            return
        yield from bots.check(chats, is_running=is_running)


def _at(given: Given[DiscordSection], account: str) -> str:
    place = (*place_of(given.place, given.section, account), "token")
    return given.origins.where(given.origins.spelt(*place))


DISCORD = DiscordKind()
