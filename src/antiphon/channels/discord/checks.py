"""The checks of `antiphon doctor` for bots of Discord: the usual mistakes, each with its remedy."""

from collections.abc import Iterator

import anyio

from antiphon.channels.discord.kind import VARIABLE, DiscordKind
from antiphon.channels.discord.section import DiscordSection
from antiphon.channels.discord.settings import (
    INTENTS_REFUSED,
    NAME,
    STARTS_SPENT,
    UNREACHABLE,
    WRONG_TOKEN,
    DiscordLook,
    DiscordSettings,
)
from antiphon.channels.kind import Given
from antiphon.clock import SystemClock
from antiphon.domain.chat_state import ChatState
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.domain.errors import Invalid

PORTAL = "https://discord.com/developers/applications"
LOOK_THERE = "docs/places/DISCORD.md lists the usual mistakes."
REMEDIES = {
    WRONG_TOKEN: f"{PORTAL}: Bot, Reset Token. Then set {VARIABLE} anew, and restart the gateway.",
    INTENTS_REFUSED: f"{PORTAL}: Bot, Message Content Intent. A running gateway notices within a minute.",
    STARTS_SPENT: "Find out in the gateway's log why it connects so often; it goes on by itself within a day.",
    UNREACHABLE: "Check whether this machine reaches https://discord.com, or channels.discord.api_base if set.",
}
"""By the trouble."""


def check_discord(
    kind: DiscordKind, given: Given[DiscordSection] | None, chats: ChatState, *, is_running: bool
) -> Iterator[CheckResult]:
    """Asks Discord about each bot, and connects none. What a running gateway found is in `chats`."""
    if given is None:
        return
    try:
        looks = anyio.run(_look, kind, kind.read(given))
    except Invalid as error:
        yield CheckResult(NAME, Grade.BROKEN, error.message, "Until this is mended, nothing starts.")
        return
    running = chats.troubles.get(NAME) if is_running else None
    for account, look in looks:
        title = NAME if len(looks) == 1 else f"{NAME} {account}"
        if (trouble := look.trouble or running) is not None:
            yield CheckResult(title, Grade.BROKEN, trouble, REMEDIES.get(trouble, LOOK_THERE))
            continue
        yield CheckResult(title, Grade.OK, f"{look.name}, in {look.servers} server(s)")
        yield from _of_portal(title, look)
    yield from _of_people(chats)


async def _look(kind: DiscordKind, settings: tuple[DiscordSettings, ...]) -> list[tuple[str, DiscordLook]]:
    bots = kind.open(settings, SystemClock())
    try:
        return await bots.look()
    finally:
        await bots.aclose()


def _of_portal(title: str, look: DiscordLook) -> Iterator[CheckResult]:
    if not look.reads_channels:
        yield CheckResult(
            f"{title} intent",
            Grade.WARNING,
            "the message content intent is off: in channels the bot reads only messages that mention it",
            f"{PORTAL}: Bot, Privileged Gateway Intents, Message Content Intent. Then restart the gateway.",
        )
    if look.interactions_url is not None:
        yield CheckResult(
            f"{title} buttons",
            Grade.WARNING,
            "presses of buttons are posted to another address, so nobody can decide by them here",
            f"{PORTAL}: General Information, delete the Interactions Endpoint URL.",
        )


def _of_people(chats: ChatState) -> Iterator[CheckResult]:
    if not chats.owners.get(NAME):
        yield CheckResult(
            "discord owner",
            Grade.WARNING,
            "no account on Discord is an owner's yet, so nobody can be admitted from there",
            "Run `antiphon pair link`, and send `/link CODE yes` to the bot in a direct message.",
        )
    if waiting := chats.asked.get(NAME):
        yield CheckResult(
            "discord channels",
            Grade.WARNING,
            f"{waiting} channel(s) not allowed yet, in which the bot answers nobody",
            "`antiphon groups list` shows them; `antiphon groups allow` and `refuse` decide.",
        )
