"""Antiphon's own channels in the suite that channels of other packages are held to as well."""

from collections.abc import Generator
from pathlib import Path

import pytest

from antiphon.testing.channels import CASES, Case
from antiphon.testing.lives import MortalGateway
from tests.channels.together.places import PLACES, Place
from tests.claims import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def gateway(place: Place) -> Generator[MortalGateway]:
    gateway = MortalGateway(f"antiphon.channels.{place.module}")
    yield gateway
    gateway.close()


@requirement("channels:1")
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("place", PLACES, ids=str, scope="module")
async def test_a_channel_does_what_channels_do(
    place: Place, case: Case, gateway: MortalGateway, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if lack := case.lack(place.kind):
        pytest.skip(lack)
    async with place.platform(request.getfixturevalue, tmp_path / "home") as platform:
        await case.prove(platform, gateway, tmp_path / "home")
