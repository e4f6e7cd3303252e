"""The channel `telegram`: what the package declares. The client library is imported only for a bot."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from antiphon.channels.abilities import Ability
from antiphon.channels.kind import ChannelKind, Given, PostAddress
from antiphon.channels.telegram.section import TelegramSection
from antiphon.channels.telegram.settings import NAME, REACTIONS, SECRET_HEADER, TelegramMode, TelegramSettings
from antiphon.clock import Clock
from antiphon.domain.chat_form import ChatForm
from antiphon.domain.chat_state import ChatState
from antiphon.domain.check_result import CheckResult
from antiphon.domain.errors import Invalid
from antiphon.wire.encoding import Shape

if TYPE_CHECKING:
    from antiphon.channels.telegram.bot import TelegramBot

_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{8,100}")
"""The form of bots' tokens."""


class UpdateAnswer(Shape, frozen=True, kw_only=True):
    ok: bool


ADDRESS = PostAddress(
    operation="telegram.receive",
    path=f"/channels/{NAME}/{{account}}",
    headers=(SECRET_HEADER,),
    about='Accepts an update that Telegram posts; needs `channels.telegram.mode = "webhook"`.',
    answer=UpdateAnswer,
    refusal="Secret is not valid: only Telegram may post updates here.",
)


class TelegramKind(ChannelKind[TelegramSection, TelegramSettings]):
    name = NAME
    title = "Telegram"
    section = TelegramSection
    about = "A bot of Telegram, through which people talk to agents; none unless set."
    chats = ChatForm(has_topics=True, chat_id_name="telegram_chat_id")
    abilities = frozenset(Ability) - {Ability.IDS, Ability.KEEPS}
    reactions = REACTIONS

    @property
    def address(self) -> PostAddress:
        return ADDRESS

    def read(self, given: Given[TelegramSection]) -> TelegramSettings:
        """Raises `Invalid` without a usable token or address."""
        section = given.section
        token = section.key() or ""
        if not _TOKEN.fullmatch(token):
            raise Invalid(_problem_of_token(given, token), code="invalid_config")
        if section.mode is TelegramMode.WEBHOOK:
            given.check_public(given.at("mode"), section.mode, "'poll'", by=self.title)
        return TelegramSettings(
            token=token,
            mode=section.mode,
            public_url=given.public_url,
            api_base=None if section.api_base is None else section.api_base.rstrip("/"),
            stream_interval=timedelta(milliseconds=section.stream_interval_ms),
        )

    def open(self, settings: TelegramSettings, clock: Clock) -> "TelegramBot":
        """Raises `Invalid` if the client library is not installed."""
        with self.needing_library():
            from antiphon.channels.telegram.bot import TelegramBot
        return TelegramBot(settings)

    def check(
        self, given: Given[TelegramSection] | None, chats: ChatState, *, is_running: bool
    ) -> Iterator[CheckResult]:
        from antiphon.channels.telegram.checks import check_telegram

        return check_telegram(self, given, chats, is_running=is_running)


def _problem_of_token(given: Given[TelegramSection], token: str) -> str:
    section, origins = given.section, given.origins
    named = section.token_env if section.token is None else None
    setting = origins.spelt(*given.place, "token")
    place = ".".join(setting) if named is None else f"the variable {named}"
    place = "it" if setting in origins.variables else place
    return (
        f"{origins.where(setting)}: Telegram has no usable token: "
        f"{place} {'does not hold one' if token else 'is not set'}. Ask "
        f"@BotFather on Telegram for one, and set the variable {named or 'ANTIPHON_TELEGRAM_TOKEN'}."
    )


TELEGRAM = TelegramKind()
