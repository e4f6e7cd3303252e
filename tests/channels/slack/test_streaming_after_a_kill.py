"""kill -9 while a reply is streamed: the message that people see already becomes the whole reply, once."""

from collections.abc import Generator
from pathlib import Path

import pytest

from antiphon.testing.lives import Life, MortalGateway
from antiphon.testing.ports import free_port
from tests.channels.slack.fake_slack import FakeSlack
from tests.channels.slack.slack_platform import CHANNEL, settings_of
from tests.channels.slack.workspace import MENTION
from tests.claims import requirement

pytestmark = pytest.mark.anyio

WHOLE = " ".join(str(number) for number in [*range(1, 21), *range(1, 21)])


@pytest.fixture(scope="module")
def gateway() -> Generator[MortalGateway]:
    gateway = MortalGateway("antiphon.channels.slack.workspaces")
    yield gateway
    gateway.close()


@requirement("channels:1", "runs:8")
@pytest.mark.parametrize("after", ["chat.startStream", "chat.appendStream", "chat.stopStream"])
async def test_a_reply_that_was_streamed_is_completed_after_a_kill(
    fake: FakeSlack, gateway: MortalGateway, tmp_path: Path, after: str
) -> None:
    section = settings_of(fake, access="public", groups={CHANNEL: {}}, stream_interval_ms=500)
    life = Life(home=str(tmp_path / "home"), settings={"channels": {"slack": section}}, port=free_port())
    gateway.begin(life)
    try:
        await fake.until(lambda: fake.connections)
        ts = fake.write("U7ANN", f"{MENTION} hi\n!sleep 0.5\n!stream 20\n!sleep 8\n!stream 20", channel=CHANNEL)
        await fake.until(lambda: any(method == after for method, _ in fake.requests))
        gateway.kill()
        gateway.begin(life)

        def is_whole() -> bool:
            shown = [each["text"].split() for each in fake.own(CHANNEL, ts)]
            return shown == [WHOLE.split()] and not fake.own(CHANNEL, ts)[0].get("is_streamed")

        await fake.until(is_whole)
    finally:
        gateway.kill()
