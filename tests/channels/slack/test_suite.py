"""The channel `slack` in the suite for channels, against a fake of Slack over the real wire."""

from collections.abc import Generator
from pathlib import Path

import pytest

from antiphon.channels.slack.kind import SLACK
from antiphon.testing.channels import CASES, Case
from antiphon.testing.lives import MortalGateway
from tests.channels.slack.slack_platform import slack_platform
from tests.claims import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def gateway() -> Generator[MortalGateway]:
    gateway = MortalGateway("antiphon.channels.slack.workspaces")
    yield gateway
    gateway.close()


@requirement("channels:1")
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_slack_does_what_channels_do(case: Case, gateway: MortalGateway, tmp_path: Path) -> None:
    if lack := case.lack(SLACK):
        pytest.skip(lack)
    async with slack_platform() as platform:
        await case.prove(platform, gateway, tmp_path / "home")
