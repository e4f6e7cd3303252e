"""Bots of Discord in the suite for channels, through the real client library, against a fake over the real wire."""

from collections.abc import Generator
from pathlib import Path

import pytest

from antiphon.channels.discord.kind import DISCORD
from antiphon.testing.channels import CASES, Case
from antiphon.testing.lives import MortalGateway
from tests.channels.discord.discord_platform import discord_platform
from tests.claims import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def gateway() -> Generator[MortalGateway]:
    gateway = MortalGateway("antiphon.channels.discord.bots")
    yield gateway
    gateway.close()


@requirement("channels:1")
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_discord_does_what_channels_do(case: Case, gateway: MortalGateway, tmp_path: Path) -> None:
    if lack := case.lack(DISCORD):
        pytest.skip(lack)
    async with discord_platform() as platform:
        await case.prove(platform, gateway, tmp_path / "home")
