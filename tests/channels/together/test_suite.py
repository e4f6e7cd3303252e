"""Antiphon's own channels in the suite that channels of other packages are held to as well.

Each is driven by its real client library: against a real server where one can be run, else against a fake over the real
wire.
"""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from antiphon.channels.deltachat.kind import DELTACHAT
from antiphon.channels.discord.kind import DISCORD
from antiphon.channels.email.kind import EMAIL
from antiphon.channels.kind import AnyKind
from antiphon.channels.matrix.kind import MATRIX
from antiphon.channels.slack.kind import SLACK
from antiphon.channels.telegram.kind import TELEGRAM
from antiphon.channels.webhook.kind import WEBHOOK
from antiphon.testing.channels import CASES, Case, Platform
from antiphon.testing.lives import MortalGateway
from tests.channels.deltachat.deltachat_platform import DeltaChatPlatform
from tests.channels.discord.discord_platform import discord_platform
from tests.channels.email.mail_platform import MailPlatform
from tests.channels.matrix.matrix_platform import matrix_platform
from tests.channels.slack.slack_platform import slack_platform
from tests.channels.telegram.telegram_platform import telegram_platform
from tests.channels.webhook_platform import webhook_platform
from tests.claims import requirement

pytestmark = pytest.mark.anyio

Servers = Callable[[str], Any]
"""Fixtures by their names: servers for all tests of the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    kind: AnyKind
    module: str
    """What a gateway with the channel imports, which takes long."""
    platform: Callable[[Servers, Path], AbstractAsyncContextManager[Platform]]


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
    Place(kind=TELEGRAM, module="telegram.bot", platform=lambda servers, home: telegram_platform()),
    Place(kind=WEBHOOK, module="webhook.channel", platform=lambda servers, home: webhook_platform()),
)


@pytest.fixture(scope="module")
def gateway(place: Place) -> Generator[MortalGateway]:
    gateway = MortalGateway(f"antiphon.channels.{place.module}")
    yield gateway
    gateway.close()


@requirement("channels:1")
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.kind.name, scope="module")
async def test_a_channel_does_what_channels_do(
    place: Place, case: Case, gateway: MortalGateway, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if lack := case.lack(place.kind):
        pytest.skip(lack)
    async with place.platform(request.getfixturevalue, tmp_path / "home") as platform:
        await case.prove(platform, gateway, tmp_path / "home")
