"""Antiphon's own channels in the suite that channels of other packages are held to as well."""

from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from antiphon.channels.kind import AnyKind
from antiphon.channels.telegram.kind import TELEGRAM
from antiphon.channels.webhook.kind import WEBHOOK
from antiphon.testing.channels import CASES, Case, Platform
from antiphon.testing.lives import MortalGateway
from tests.channels.telegram.telegram_platform import telegram_platform
from tests.channels.webhook_platform import webhook_platform
from tests.claims import requirement

pytestmark = pytest.mark.anyio

PLATFORMS: dict[AnyKind, Callable[[], AbstractAsyncContextManager[Platform]]] = {
    TELEGRAM: telegram_platform,
    WEBHOOK: webhook_platform,
}


@pytest.fixture(scope="module")
def gateway() -> Generator[MortalGateway]:
    gateway = MortalGateway("antiphon.channels.telegram.bot", "antiphon.channels.webhook.channel")
    yield gateway
    gateway.close()


@requirement("channels:1")
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("kind", PLATFORMS, ids=lambda kind: kind.name)
async def test_a_channel_does_what_channels_do(
    kind: AnyKind, case: Case, gateway: MortalGateway, tmp_path: Path
) -> None:
    if lack := case.lack(kind):
        pytest.skip(lack)
    async with PLATFORMS[kind]() as platform:
        await case.prove(platform, gateway, tmp_path / "home")
