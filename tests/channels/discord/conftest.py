"""Fixtures for tests of bots of Discord."""

from collections.abc import AsyncGenerator

import pytest

from antiphon.testing.serving import serve_fake
from tests.channels.discord.fake_discord import FakeDiscord


@pytest.fixture
async def fake() -> AsyncGenerator[FakeDiscord]:
    async with serve_fake(FakeDiscord()) as fake:
        yield fake
