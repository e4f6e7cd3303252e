"""Fixtures for tests of the channel."""

from collections.abc import AsyncGenerator

import pytest

from antiphon.testing.serving import serve_fake
from tests.channels.slack.fake_slack import FakeSlack
from tests.channels.slack.slack_platform import PEOPLE


@pytest.fixture
async def fake() -> AsyncGenerator[FakeSlack]:
    async with serve_fake(FakeSlack()) as fake:
        for name, id in PEOPLE.items():
            fake.add_user(id, name.title())
        yield fake
