"""Matrix in the suite for channels, against a real homeserver."""

from collections.abc import Generator
from pathlib import Path

import pytest

from antiphon.channels.matrix.kind import MATRIX
from antiphon.testing.channels import CASES, Case
from antiphon.testing.lives import MortalGateway
from tests.channels.matrix.matrix_platform import matrix_platform
from tests.channels.matrix.synapse import Synapse
from tests.claims import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def gateway() -> Generator[MortalGateway]:
    gateway = MortalGateway("antiphon.channels.matrix.account")
    yield gateway
    gateway.close()


@requirement("channels:1")
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_matrix_does_what_channels_do(
    case: Case, gateway: MortalGateway, synapse: Synapse, tmp_path: Path
) -> None:
    if lack := case.lack(MATRIX):
        pytest.skip(lack)
    async with matrix_platform(synapse) as platform:
        await case.prove(platform, gateway, tmp_path / "home")
