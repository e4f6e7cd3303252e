"""Replies that people see on Telegram while they are written, and requests for approval with buttons."""

import pytest

from antiphon.app import Parts
from antiphon.testing.telegram import FakeTelegram, Json
from tests.channels.telegram.bots import ANN, BEN, FAMILY, OLGA, open_bot
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.test_approvals import Disk, pending
from tests.engine.test_live import Writer

pytestmark = pytest.mark.anyio

TOPIC = {"message_thread_id": 9, "is_topic_message": True}


def labels(message: Json) -> list[str]:
    return [button["text"] for row in message.get("reply_markup", {}).get("inline_keyboard", []) for button in row]


@requirement("channels:1")
async def test_a_private_chat_shows_a_draft_and_then_the_reply(open_home: OpenHome, fake: FakeTelegram) -> None:
    writer = Writer()
    async with open_bot(open_home, fake, Parts(runner=writer)) as bot:
        await bot.link_owner()
        fake.write("tell me a story", sender=OLGA)
        context = await writer.begins()
        await fake.until(lambda: "sendChatAction" in [method for method, _ in fake.requests])
        context.emit("Once upon")
        await fake.until(lambda: "Once upon" in fake.drafts.values())
        assert len(fake.texts(1)) == 1
        writer.end(context, "Once upon a time.")
        await fake.until(lambda: len(fake.texts(1)) == 2)
        assert fake.texts(1)[1] == "Once upon a time."


@requirement("channels:1")
async def test_a_topic_shows_one_message_that_becomes_the_reply(open_home: OpenHome, fake: FakeTelegram) -> None:
    writer = Writer()
    async with open_bot(open_home, fake, Parts(runner=writer), groups={"-100": {}}) as bot:
        fake.write("@test_bot tell us a story", sender=ANN, chat=FAMILY, **TOPIC)
        context = await writer.begins()
        context.emit("Once upon")
        await fake.until(lambda: fake.texts(-100, 9) == ["Once upon"])
        (first,) = fake.messages(-100)
        writer.end(context, "Once upon a time.")
        await fake.until(lambda: fake.texts(-100, 9) == ["Once upon a time."])
        await bot.settles()
        (last,) = fake.messages(-100)
        assert last["message_id"] == first["message_id"] and fake.drafts == {}


@requirement("approvals:3", "approvals:4")
async def test_a_request_from_a_group_is_decided_by_a_button_in_private(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    disk = Disk()
    async with open_bot(open_home, fake, disk.parts(), groups={"-100": {}}) as bot:
        await bot.link_owner()
        fake.write(to_call("note", text="milk"), sender=ANN, chat=FAMILY)
        await bot.settles()
        fake.write(to_call("delete", name="backups"), sender=OLGA, chat=FAMILY)
        (approval,) = await pending(bot.app)
        await fake.until(lambda: len(fake.texts(1)) == 2)
        request = fake.messages(1)[1]
        assert labels(request) == ["Approve once", "Always", "Deny"] and "backups" in request["text"]
        assert not any(labels(message) for message in fake.messages(-100))
        data = f"{approval.id}:once"
        fake.press(data, sender=BEN, chat=1, message_id=request["message_id"])
        await bot.settles()
        assert disk.calls == []
        fake.press(data, sender=OLGA, chat=1, message_id=request["message_id"])
        await fake.until(lambda: "Approved once" in fake.texts(1)[1])
        fake.press(data, sender=OLGA, chat=1, message_id=request["message_id"])
        await bot.settles()
        assert disk.calls == ["delete backups"] and labels(fake.messages(1)[1]) == []
