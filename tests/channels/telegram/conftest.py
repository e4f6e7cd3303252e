"""Fixtures for tests of the bot."""

from collections.abc import AsyncGenerator

import pytest

from antiphon.testing.serving import serve_fake
from antiphon.testing.telegram import FakeTelegram


@pytest.fixture
async def fake() -> AsyncGenerator[FakeTelegram]:
    async with serve_fake(FakeTelegram()) as fake:
        yield fake
