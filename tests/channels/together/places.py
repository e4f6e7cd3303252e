"""Antiphon's own channels with their platforms: a real server where one can be run, else a fake over the real wire."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from antiphon.channels.deltachat.kind import DELTACHAT
from antiphon.channels.discord.kind import DISCORD
from antiphon.channels.email.kind import EMAIL
from antiphon.channels.kind import AnyKind
from antiphon.channels.matrix.kind import MATRIX
from antiphon.channels.slack.kind import SLACK
from antiphon.channels.telegram.kind import TELEGRAM
from antiphon.channels.webhook.kind import WEBHOOK
from antiphon.testing.channels import Platform
from tests.channels.deltachat.deltachat_platform import DeltaChatPlatform
from tests.channels.discord.discord_platform import discord_platform
from tests.channels.email.mail_platform import MailPlatform
from tests.channels.matrix.matrix_platform import matrix_platform
from tests.channels.slack.slack_platform import slack_platform
from tests.channels.telegram.telegram_platform import telegram_platform
from tests.channels.webhook_platform import webhook_platform

Servers = Callable[[str], Any]
"""Fixtures by their names: servers for all tests of the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    kind: AnyKind
    module: str
    """What a gateway with the channel imports, which takes long."""
    platform: Callable[[Servers, Path], AbstractAsyncContextManager[Platform]]
    way: str = ""
    """How messages come in, if there are several ways."""

    def __str__(self) -> str:
        return f"{self.kind.name}{self.way and '-'}{self.way}"


@asynccontextmanager
async def mail_platform(servers: Servers, home: Path) -> AsyncGenerator[Platform]:
    yield MailPlatform(servers("office"))


@asynccontextmanager
async def deltachat(servers: Servers, home: Path) -> AsyncGenerator[Platform]:
    platform = DeltaChatPlatform(servers("office"), servers("people"), home)
    try:
        yield platform
    finally:
        platform.leave()


PLACES = (
    Place(kind=DELTACHAT, module="deltachat.account", platform=deltachat),
    Place(kind=DISCORD, module="discord.bots", platform=lambda servers, home: discord_platform()),
    Place(kind=EMAIL, module="email.account", platform=mail_platform),
    Place(kind=MATRIX, module="matrix.account", platform=lambda servers, home: matrix_platform(servers("synapse"))),
    Place(kind=SLACK, module="slack.workspaces", platform=lambda servers, home: slack_platform()),
    Place(kind=SLACK, module="slack.workspaces", platform=lambda servers, home: slack_platform(posts=True), way="http"),
    Place(kind=TELEGRAM, module="telegram.bot", platform=lambda servers, home: telegram_platform()),
    Place(kind=WEBHOOK, module="webhook.channel", platform=lambda servers, home: webhook_platform()),
)
