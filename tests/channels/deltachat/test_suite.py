"""Delta Chat in the suite for channels: its own core on both sides, and real mail servers between them."""

from collections.abc import Generator
from pathlib import Path

import pytest
from deltachat_rpc_client import DeltaChat

from antiphon.channels.deltachat.kind import DELTACHAT
from antiphon.testing.channels import CASES, Case
from antiphon.testing.lives import MortalGateway
from tests.channels.deltachat.deltachat_platform import DeltaChatPlatform
from tests.channels.email.post_office import PostOffice
from tests.claims import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def gateway() -> Generator[MortalGateway]:
    gateway = MortalGateway("antiphon.channels.deltachat.account")
    yield gateway
    gateway.close()


@requirement("channels:1")
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_delta_chat_does_what_channels_do(
    case: Case, gateway: MortalGateway, office: PostOffice, people: DeltaChat, tmp_path: Path
) -> None:
    if lack := case.lack(DELTACHAT):
        pytest.skip(lack)
    platform = DeltaChatPlatform(office, people, tmp_path / "home")
    try:
        await case.prove(platform, gateway, tmp_path / "home")
    finally:
        platform.leave()
