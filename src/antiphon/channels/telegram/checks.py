"""The checks of `antiphon doctor` for a bot of Telegram: the seven usual mistakes, each with its remedy."""

import os
from collections.abc import Iterator
from functools import partial

import anyio

from antiphon.channels.checks import check_people
from antiphon.channels.kind import Given
from antiphon.channels.telegram.kind import TelegramKind
from antiphon.channels.telegram.section import TelegramSection
from antiphon.channels.telegram.settings import (
    NAME,
    OTHER_POLLS,
    UNREACHABLE,
    WEBHOOK_IS_SET,
    WRONG_TOKEN,
    BotLook,
    TelegramSettings,
)
from antiphon.clock import SystemClock
from antiphon.domain.chat_state import ChatState
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.domain.errors import Invalid

TITLE = "telegram"
VARIABLE = "ANTIPHON_TELEGRAM_TOKEN"
_SIMILAR = ("TELEGRAM_TOKEN", "TELEGRAM_BOT_TOKEN", "ANTIPHON_TELEGRAM_BOT_TOKEN")
"""Variables of other programs, which people set by mistake."""
LOOK_THERE = "docs/TELEGRAM.md lists the usual mistakes."
REMEDIES = {
    WRONG_TOKEN: f"Ask @BotFather: /token shows the token, /revoke makes a new one. Then set {VARIABLE} anew.",
    OTHER_POLLS: (
        "Stop the other program, such as an old gateway or a test on another machine, or make a bot for it. "
        "A running gateway notices within a minute."
    ),
    WEBHOOK_IS_SET: (
        "It may belong to another program. `curl https://api.telegram.org/bot<token>/deleteWebhook` removes it. "
        'Or set channels.telegram.mode to "webhook".'
    ),
    UNREACHABLE: "Check whether this machine reaches https://api.telegram.org, or channels.telegram.api_base if set.",
}
"""By the trouble."""


def check_telegram(
    kind: TelegramKind, given: Given[TelegramSection] | None, chats: ChatState, *, is_running: bool
) -> Iterator[CheckResult]:
    """Asks Telegram about the bot. A running gateway is not disturbed: what it found is in `chats`."""
    if given is None:
        if similar := [name for name in _SIMILAR if os.environ.get(name)]:
            yield CheckResult(
                TITLE, Grade.WARNING, f"no token: {similar[0]} is set, which Antiphon does not read", f"Set {VARIABLE}."
            )
        return
    try:
        settings = kind.read(given)
    except Invalid as error:
        remedy = f"Set {VARIABLE} to the token of @BotFather. " if "usable token" in error.message else ""
        yield CheckResult(TITLE, Grade.BROKEN, error.message, f"{remedy}Until this is mended, nothing starts.")
        return
    try:
        look = anyio.run(partial(_look, kind, settings, may_poll=not is_running))
    except Invalid as error:
        yield CheckResult(TITLE, Grade.BROKEN, error.message, "Install it, then start again.")
        return
    trouble = look.trouble or (chats.trouble(NAME) if is_running else None)
    if trouble is not None:
        yield CheckResult(TITLE, Grade.BROKEN, trouble, REMEDIES.get(trouble, LOOK_THERE))
        return
    yield CheckResult(TITLE, Grade.OK, f"@{look.name}, {settings.mode.value}")
    yield from _of_people(given.section, chats, look)


async def _look(kind: TelegramKind, settings: TelegramSettings, *, may_poll: bool) -> BotLook:
    """What Telegram says about the bot; nothing is changed or confirmed. Raises `Invalid` like `TelegramKind.open`.

    Polling shows whether another program polls, and would disturb a gateway that does.
    """
    bot = kind.open(settings, SystemClock())
    try:
        return await bot.look_at_bot(may_poll=may_poll)
    finally:
        await bot.aclose()


def _of_people(section: TelegramSection, chats: ChatState, look: BotLook) -> Iterator[CheckResult]:
    remedy = (
        "Open the link that `antiphon serve` prints in a terminal. Or run `antiphon pair link`, and send "
        "`/link CODE yes` to the bot."
    )
    yield from check_people(NAME, "Telegram", chats, remedy=remedy)
    has_groups = bool(section.groups) or bool(chats.allowed.get(NAME))
    if has_groups and not look.reads_groups:
        yield CheckResult(
            "telegram privacy",
            Grade.WARNING,
            "privacy mode is on: in groups the bot sees only commands, mentions and answers to it",
            "Tell @BotFather /setprivacy, Disable; then remove the bot from the group and add it again.",
        )
