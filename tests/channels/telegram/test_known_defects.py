"""Defects that other gateways have had with chats, one test each."""

from datetime import timedelta
from typing import Any

import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.message import UserMessage, text_of
from antiphon.testing.telegram import FakeTelegram
from tests.channels.telegram.bots import ANN, BEN, FAMILY, OLGA, open_bot
from tests.channels.telegram.test_replies import asked, data_of
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.deliveries.test_live import Writer
from tests.engine.stage import ManualClock, find_session, read_log

pytestmark = pytest.mark.anyio

MAY_ASK: dict[str, Any] = {"access": "public", "access__roles__guest__tools": ["wipe"]}


def wiping(calls: list[str]) -> Parts:
    def wipe() -> str:
        """Deletes."""
        calls.append("wipe")
        return "wiped"

    return Parts(tools=[tool(wipe, effects=["deletes"])])


@requirement("groups:3")
async def test_no_beginning_of_a_marker_such_as_no_is_left_in_a_chat(open_home: OpenHome, fake: FakeTelegram) -> None:
    clock, writer = ManualClock(), Writer()
    async with open_bot(open_home, fake, Parts(clock=clock, runner=writer), groups={"-100": {}}) as bot:
        fake.write("@test_bot hello", sender=ANN, chat=FAMILY)
        context = await writer.begins()
        for piece in ("<", "NO", "_RE", "PLY", ">"):
            context.emit(piece)
            clock.pass_time(timedelta(seconds=10))
            await bot.app.live.wait_idle()
        writer.end(context, "<NO_REPLY>")
        await bot.settles()
        said = [method for method, _ in fake.requests if method in ("sendMessage", "editMessageText")]
        assert (said, fake.texts(-100)) == ([], [])


@requirement("approvals:4")
async def test_buttons_of_a_request_that_was_decided_elsewhere_vanish_and_decide_nothing(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    calls: list[str] = []
    async with open_bot(open_home, fake, wiping(calls), **MAY_ASK) as bot:
        await bot.link_owner()
        fake.write("!call wipe {}", sender=ANN)
        message = await asked(bot)
        data = data_of(message, "Approve")
        fake.write(f"/deny {data.partition(':')[0]}", sender=OLGA)
        await fake.until(lambda: not any("reply_markup" in each for each in fake.messages(1)))
        fake.press(data, sender=OLGA, chat=1, message_id=message["message_id"])
        await bot.settles()
        (answer,) = [sent for method, sent in fake.requests if method == "answerCallbackQuery"]
        assert "already decided" in answer["text"] and calls == []
        assert '"status": "error"' in fake.texts(7)[-1]


@requirement("approvals:4", "channels:4")
async def test_an_approval_is_not_lost_while_a_run_is_active(open_home: OpenHome, fake: FakeTelegram) -> None:
    calls: list[str] = []
    async with open_bot(open_home, fake, wiping(calls), **MAY_ASK) as bot:
        await bot.link_owner()
        fake.write("!sleep 3600", sender=OLGA)
        fake.write("waits behind it", sender=OLGA)
        fake.write("!call wipe {}", sender=ANN)
        message = await asked(bot)
        fake.write(f"/approve {data_of(message, 'Approve').partition(':')[0]}", sender=OLGA)
        await fake.until(lambda: any("wiped" in text for text in fake.texts(7)))
        assert calls == ["wipe"]
        fake.write("/stop", sender=OLGA)
        await bot.settles()


@requirement("channels:1")
async def test_an_update_that_comes_three_times_is_stored_once(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake, access="public") as bot:
        await bot.says("hello", sender=ANN)
        update = fake.add_update("message", fake.write("again", sender=ANN))
        await fake.until(lambda: any("again" in text for text in fake.texts(7)))
        await bot.settles()
        for _ in range(2):
            fake.add_update("message", update["message"])
            await bot.settles()
        await bot.says("the end", sender=ANN)
        await bot.settles()
        log = await read_log(bot.app, "agent:main:telegram:direct:7")
        stored = [text_of(event.message.content) for event in log if isinstance(event.message, UserMessage)]
        assert stored == ["hello", "again", "the end"]
        assert fake.texts(7) == ["echo: hello", "echo: again", "echo: the end"]


@requirement("keys:5")
async def test_two_chats_never_share_a_session(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake, access="public", groups={"-100": {}}) as bot:
        for sender in (ANN, BEN):
            await bot.says(f"I am {sender['first_name']}", sender=sender)
        await bot.says("@test_bot and we", sender=ANN, chat=FAMILY)
        await bot.settles()
        assert (fake.texts(7), fake.texts(8)) == (["echo: I am Ann"], ["echo: I am Ben"])
        keys = ["agent:main:telegram:direct:7", "agent:main:telegram:direct:8", "agent:main:telegram:group:-100"]
        logs = [await read_log(bot.app, key) for key in keys]
        assert [sum(isinstance(event.message, UserMessage) for event in log) for log in logs] == [1, 1, 1]


@requirement("channels:4", "send_policy:2")
async def test_nobody_but_an_owner_turns_sending_off(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake, access="public", groups={"-100": {}}) as bot:
        await bot.says("hello", sender=ANN)
        await bot.says("@test_bot hello", sender=ANN, chat=FAMILY)
        fake.write("/send off", sender=ANN)
        fake.write("/send@test_bot off", sender=ANN, chat=FAMILY)
        await bot.says("still there?", sender=ANN)
        await bot.says("@test_bot still there?", sender=ANN, chat=FAMILY)
        await bot.settles()
        assert not any("ending" in text for text in [*fake.texts(7), *fake.texts(-100)])
        session = await find_session(bot.app, "agent:main:telegram:direct:7")
        assert session.send_policy is None
