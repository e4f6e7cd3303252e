"""Replies that people see on Telegram while they are written, and requests for approval with buttons."""

from datetime import timedelta

import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Classification, Level, NamedClassification
from antiphon.domain.person import PersonRole
from antiphon.testing.telegram import FakeTelegram, Json
from tests.channels.telegram.bots import ANN, BEN, FAMILY, OLGA, Bot, open_bot, until
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.approvals.test_approvals import Disk, pending
from tests.engine.deliveries.test_live import Writer
from tests.engine.stage import ManualClock

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
        # The guest's words stand before the owner's.
        assert labels(request) == ["Approve once", "Trust what was read", "Always", "Deny"]
        assert "backups" in request["text"]
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


@requirement("flow:7", "access:1", "channels:1")
@pytest.mark.parametrize("change", ["clear", "demote"])
async def test_who_may_not_read_it_any_more_sees_no_more_of_a_reply(
    open_home: OpenHome, fake: FakeTelegram, change: str
) -> None:
    writer, clock, secret = Writer(), ManualClock(), NamedClassification(level=Level.CONFIDENTIAL)
    settings: Json = {"clearance": {"level": "CONFIDENTIAL"}, "access": "public"}
    async with open_bot(open_home, fake, Parts(runner=writer, clock=clock), **settings) as bot:
        people, live = bot.app.services.people, bot.app.live
        role = PersonRole.OWNER if change == "demote" else PersonRole.USER
        anna = (await people.invite(OWNER, "Anna", role)).person
        if change == "clear":
            await people.clear(OWNER, anna.id, secret)
        made = await bot.app.services.links.make_code(anna.principal)
        fake.write(f"/link {made.code} yes", sender=ANN)
        await fake.until(lambda: fake.texts(7))
        fake.write("what is the plan?", sender=ANN)
        context = await writer.begins()
        context.surroundings = Classification(Level.CONFIDENTIAL)
        context.emit("The plan")
        await until(lambda: shows(bot, clock, "The plan"))
        if change == "clear":
            await people.clear(OWNER, anna.id, None)
        else:
            await people.change_role(OWNER, anna.id, PersonRole.USER)
        context.emit(" is bold.")
        for _ in range(3):
            clock.pass_time(timedelta(seconds=25))
            await live.wait_idle()
        assert {*fake.drafts.values()} == {"The plan"}, "the draft is not even repeated"
        writer.end(context, "The plan is bold.")
        await bot.settles()
        assert len(fake.texts(7)) == 1


async def shows(bot: Bot, clock: ManualClock, words: str) -> bool:
    clock.pass_time(timedelta(seconds=2))
    await bot.app.live.wait_idle()
    return words in bot.fake.drafts.values()
