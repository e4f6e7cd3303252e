"""Requests that an older version asked: still answerable, once they are shown as they would run."""

import gzip
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from antiphon.app import open_app
from antiphon.building import App
from antiphon.config.config import Config
from antiphon.domain.approval import Approval
from antiphon.domain.classification import Compartments
from antiphon.domain.ids import AgentId
from antiphon.domain.inbound import ButtonPress, Sender
from antiphon.domain.session import DeliveryContext
from antiphon.engine.chats.reception import Reception
from antiphon.engine.deliveries.requests import SHOWN_ANEW
from antiphon.engine.rules import Rules
from antiphon.policy.chats import ChannelRules, ChatRules
from tests.channels.fake_channel import NAME, LiveFakeChannel
from tests.claims import requirement
from tests.engine.approvals.test_approvals import Disk, code_of, pending, results
from tests.engine.deliveries.test_deliveries import quiet
from tests.engine.stage import read_log, wait_end

pytestmark = pytest.mark.anyio

STORED = Path(__file__).parents[2] / "store" / "homes" / "0036-requests.db.gz"
"""Three open requests, each shown in a chat as version 0036 showed them."""
PLACE = DeliveryContext(channel=NAME, account_id="default", to="42")


def settings() -> Config:
    """Of a home with people on the default account of its channel."""
    return DefaultConfig.model_validate({})


class DefaultConfig(Config):
    def rules(self, compartments: Compartments | None = None) -> Rules:
        channels = {(NAME, "default"): ChannelRules(agent_id=AgentId("main"))}
        return replace(super().rules(compartments), chats=ChatRules(channels=channels))


async def press(app: App, approval: Approval, word: str, message: str) -> str | None:
    pressed = ButtonPress(
        platform_id=f"{message} {word} {app.services.clock.now_ms()}",
        place=PLACE,
        sender=Sender(id="42", name="Olga"),
        data=f"{approval.id}:{word}",
        message_id=message,
    )
    services = app.services
    reception = Reception(app.database, services.rules, app.workspaces, clock=services.clock)
    return (await reception.press(pressed)).toast


@requirement("approvals:3", "approvals:4")
async def test_a_message_of_an_older_version_is_shown_anew_before_its_call_is_approved(home: Path) -> None:
    home.mkdir(mode=0o700)
    with gzip.open(STORED) as source, (home / "antiphon.db").open("wb") as target:
        shutil.copyfileobj(source, target)
    disk, channel = Disk(), LiveFakeChannel("default")
    async with open_app(home, settings(), replace(disk.parts(), channels=[channel])) as app:
        twice, fenced, plain = await pending(app, 3)
        assert await press(app, plain, "once", "platform-1") == SHOWN_ANEW
        assert await press(app, fenced, "once", "platform-2") == SHOWN_ANEW
        assert await press(app, twice, "once", "platform-3") == SHOWN_ANEW
        assert disk.calls == [] and len(await pending(app, 3)) == 3
        await quiet(app)
        for approval, message in ((plain, "platform-1"), (fenced, "platform-2"), (twice, "platform-3")):
            part = channel.shown[message]
            assert part.spans is not None and part.buttons[0].label == "Approve once"
            blocks = [part.text[each.start : each.end] for each in part.spans if each.is_block]
            assert blocks == [approval.calls[0].arguments]
            assert await press(app, approval, "once", message) == "Approved once."
            await wait_end(app, approval.run)
        assert disk.calls == ["delete backups", "delete echo `rm` ```"]
        assert code_of(results(await read_log(app, "api:twice"))[0]) == "invalid_arguments"
        await quiet(app)
        assert all(not part.buttons and "Approved once by" in part.text for part in channel.shown.values())


@requirement("approvals:3")
async def test_a_message_of_an_older_version_is_denied_at_once(home: Path) -> None:
    home.mkdir(mode=0o700)
    with gzip.open(STORED) as source, (home / "antiphon.db").open("wb") as target:
        shutil.copyfileobj(source, target)
    disk, channel = Disk(), LiveFakeChannel("default")
    async with open_app(home, settings(), replace(disk.parts(), channels=[channel])) as app:
        _, fenced, _ = await pending(app, 3)
        assert await press(app, fenced, "deny", "platform-2") == "Denied."
        await wait_end(app, fenced.run)
        assert disk.calls == []
