"""Files are fetched from Slack alone, and not beyond what may be taken in."""

import pytest

from antiphon.channels.files import FileTooLarge
from antiphon.channels.slack.client import SlackClient
from antiphon.channels.slack.section import SlackAccount
from antiphon.testing.serving import serve_fake
from tests.channels.slack.fake_slack import APP_TOKEN, TOKEN, FakeSlack
from tests.channels.slack.slack_platform import settings_of
from tests.claims import requirement
from tests.engine.stage import ManualClock

pytestmark = pytest.mark.anyio


def client_of(**section: object) -> SlackClient:
    return SlackClient(SlackAccount.model_validate({"token": TOKEN, "app_token": APP_TOKEN, **section}), ManualClock())


@requirement("channels:1")
async def test_the_token_goes_to_slack_alone(fake: FakeSlack) -> None:
    client = client_of(**settings_of(fake))
    async with serve_fake(FakeSlack()) as evil:
        evil.files["F1"] = fake.files["F1"] = b"data"
        try:
            assert await client.download(f"http://127.0.0.1:{fake.port}/files/F1", 9) == b"data"
            assert await client.download(f"http://127.0.0.1:{evil.port}/files/F1", 9) is None
            with pytest.raises(FileTooLarge):
                await client.download(f"http://127.0.0.1:{fake.port}/files/F1", 3)
            fake.token = "another"
            assert await client.download(f"http://127.0.0.1:{fake.port}/files/F1", 9) is None, "a page for signing in"
        finally:
            await client.aclose()


@requirement("channels:1")
@pytest.mark.parametrize(
    "url",
    [
        "http://files.slack.com/a",
        "https://files.slack.com.evil.example/a",
        "https://evil.example/files.slack.com",
        "https://files.slack.com@evil.example/a",
        "https://notslack.com/a",
        "https://files.slack.com:8443/a",
        "https://[files.slack.com/a",
        "file:///etc/passwd",
        "",
    ],
)
async def test_no_other_address_is_asked(url: str) -> None:
    client = client_of()
    assert await client.download(url, 9) is None
    await client.aclose()
