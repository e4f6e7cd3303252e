"""The example of a channel in the suite for channels, against a real server."""

import re
from collections.abc import Generator
from pathlib import Path

import pytest

from antiphon.testing.channels import CASES, Case
from antiphon.testing.lives import MortalGateway
from tests.channels.xmpp.conftest import EXAMPLE
from tests.channels.xmpp.prosody import Prosody
from tests.claims import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def gateway(package: Path) -> Generator[MortalGateway]:
    gateway = MortalGateway("antiphon_xmpp.account")
    yield gateway
    gateway.close()


def test_it_is_small_and_needs_nothing_from_within() -> None:
    lines = [line for file in sorted(EXAMPLE.rglob("*.py")) for line in file.read_text("utf-8").splitlines()]
    assert 0 < len(lines) <= 300
    within = re.compile(r"\s*(?:from|import) antiphon\.(?:store|engine|policy)\b")
    assert not [line for line in lines if within.match(line)]


@requirement("channels:1")
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_the_example_does_what_channels_do(
    case: Case, gateway: MortalGateway, prosody: Prosody, tmp_path: Path
) -> None:
    from antiphon_xmpp import XMPP
    from tests.channels.xmpp.xmpp_platform import xmpp_platform

    if lack := case.lack(XMPP):
        pytest.skip(lack)
    async with xmpp_platform(prosody) as platform:
        await case.prove(platform, gateway, tmp_path / "home")
