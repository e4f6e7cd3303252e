"""E-mail in the suite for channels, against Dovecot and a server that delivers into it."""

from collections.abc import Generator
from pathlib import Path

import pytest

from antiphon.channels.email.kind import EMAIL
from antiphon.testing.channels import CASES, Case
from antiphon.testing.lives import MortalGateway
from tests.channels.email.mail_platform import MailPlatform
from tests.channels.email.post_office import PostOffice
from tests.claims import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def gateway() -> Generator[MortalGateway]:
    gateway = MortalGateway("antiphon.channels.email.account")
    yield gateway
    gateway.close()


@requirement("channels:1")
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_email_does_what_channels_do(
    case: Case, gateway: MortalGateway, office: PostOffice, tmp_path: Path
) -> None:
    if lack := case.lack(EMAIL):
        pytest.skip(lack)
    await case.prove(MailPlatform(office), gateway, tmp_path / "home")
