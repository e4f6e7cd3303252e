"""Replies in chats: shown while they are written, in parts, and approvals as buttons."""

from typing import Any

import anyio
import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.delivery import MOVED, DeliveryStatus
from antiphon.store.deliveries import DeliveryFilter
from antiphon.testing.faults import Fault
from antiphon.testing.telegram import FakeTelegram, Json
from tests.channels.telegram.bots import ANN, BEN, FAMILY, OLGA, Bot, open_bot, pass_time
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.deliveries.test_live import Writer
from tests.engine.stage import ManualClock

pytestmark = pytest.mark.anyio


@requirement("channels:1")
async def test_a_busy_platform_is_asked_again_when_it_says(open_home: OpenHome, fake: FakeTelegram) -> None:
    clock = ManualClock()
    fake.retry_after = 30
    fake.will("sendMessage", Fault.BUSY, Fault.BUSY)
    async with open_bot(open_home, fake, Parts(clock=clock), access="public") as bot:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pass_time, bot, clock)
            await bot.says("hello", sender=ANN)
            tasks.cancel_scope.cancel()
        await bot.settles()
        assert fake.texts(7) == ["echo: hello"]


@requirement("groups:3", "channels:1")
@pytest.mark.parametrize("is_group", [False, True], ids=["direct", "group"])
async def test_a_reply_is_seen_while_it_is_written_and_stands_there_once(
    open_home: OpenHome, fake: FakeTelegram, is_group: bool
) -> None:
    clock, writer = ManualClock(), Writer()
    parts = Parts(clock=clock, runner=writer)
    async with open_bot(open_home, fake, parts, access="public", groups={"-100": {}}) as bot:
        place = -100 if is_group else 7
        fake.write("@test_bot hello", sender=ANN, chat=FAMILY if is_group else None)
        context = await writer.begins()
        context.emit("It is ")
        first: Json | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pass_time, bot, clock)
            if is_group:
                await fake.until(lambda: [text.strip() for text in fake.texts(place)] == ["It is"])
                (first,) = fake.messages(place)
            else:
                await fake.until(lambda: [text.strip() for text in fake.drafts.values()] == ["It is"])
            writer.end(context, "It is **done**")
            await fake.until(lambda: "It is done" in fake.texts(place))
            tasks.cancel_scope.cancel()
        await bot.settles()
        (message,) = fake.messages(place)
        assert first is None or message["message_id"] == first["message_id"]


def wipe() -> str:
    """Deletes."""
    return "wiped"


async def asked(bot: Bot) -> Json:
    """The message with buttons that the owner gets."""
    await bot.fake.until(lambda: any("reply_markup" in each for each in bot.fake.messages(1)))
    return next(each for each in bot.fake.messages(1) if "reply_markup" in each)


def data_of(message: Json, label: str) -> str:
    buttons: list[Json] = [each for row in message["reply_markup"]["inline_keyboard"] for each in row]
    return next(each["callback_data"] for each in buttons if label in each["text"])


@requirement("approvals:4", "channels:1")
async def test_an_owner_decides_by_a_button_and_sees_who_decided(open_home: OpenHome, fake: FakeTelegram) -> None:
    parts = Parts(tools=[tool(wipe, effects=["deletes"])])
    settings: Any = {"access__roles__guest__tools": ["wipe"], "groups": {"-100": {}}, "access": "public"}
    async with open_bot(open_home, fake, parts, **settings) as bot:
        await bot.link_owner()
        fake.write("!call wipe {}", sender=ANN)
        message = await asked(bot)
        data = data_of(message, "Approve")
        fake.press(data, sender=BEN, chat=1, message_id=message["message_id"])
        fake.press(data, sender=OLGA, chat=1, message_id=message["message_id"])
        await fake.until(lambda: any("wiped" in text for text in fake.texts(7)))
        await bot.settles()
        (shown,) = [each for each in fake.messages(1) if each["message_id"] == message["message_id"]]
        assert "reply_markup" not in shown and shown["text"] != message["text"]
        fake.press(data, sender=OLGA, chat=1, message_id=message["message_id"])
        await bot.settles()
        answers = [sent.get("text") for method, sent in fake.requests if method == "answerCallbackQuery"]
        assert len(answers) == 3 and all(answers)


@requirement("channels:1")
async def test_a_table_in_a_reply_is_seen_with_columns(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake, access="public") as bot:
        fake.write("\n| tea | 3 |\n|---|--:|\n| milk | 12 |", sender=ANN)
        await fake.until(lambda: fake.texts(7))
        assert fake.texts(7) == ["echo: \ntea    3\n----  --\nmilk  12"]
        (entity,) = fake.messages(7)[0]["entities"]
        assert entity["type"] == "pre"
        await bot.settles()


TOPIC: dict[str, Any] = {"message_thread_id": 5, "is_topic_message": True}


@requirement("channels:1", "groups:4")
@pytest.mark.parametrize("said", ["message thread not found", "TOPIC_CLOSED", "TOPIC_DELETED"])
async def test_a_reply_into_a_topic_that_is_lost_stands_in_the_group_and_says_so(
    open_home: OpenHome, fake: FakeTelegram, said: str
) -> None:
    async with open_bot(open_home, fake, access="public", groups={"-100": {}}) as bot:
        fake.lost_topics[-100, 5] = said
        fake.write("@test_bot hello", sender=ANN, chat=FAMILY, **TOPIC)
        await fake.until(lambda: fake.texts(-100))
        await bot.settles()
        assert fake.texts(-100) == [f"{MOVED}echo: @test_bot hello"] and fake.texts(-100, 5) == []
        fake.lost_topics.clear()
        await bot.says("@test_bot again", sender=ANN, chat=FAMILY, **TOPIC)
        assert fake.texts(-100, 5) == ["echo: @test_bot again"]
        await bot.settles()


@requirement("channels:1")
async def test_antiphons_own_words_leave_a_lost_topic_with_what_is_code_in_them(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with open_bot(open_home, fake, groups={"-100": {}}) as bot:
        await bot.link_owner()
        await bot.says("hello", chat=FAMILY, **TOPIC)
        await bot.settles()
        fake.lost_topics[-100, 5] = "TOPIC_CLOSED"
        fake.write("/status", sender=OLGA, chat=FAMILY, **TOPIC)
        await fake.until(lambda: fake.texts(-100))
        (shown,) = [each for each in fake.messages(-100) if "message_thread_id" not in each]
        assert shown["text"].startswith(MOVED)
        for entity in shown.get("entities", []):
            assert entity["offset"] >= len(MOVED)
        await bot.settles()


@requirement("channels:1")
async def test_a_long_reply_whose_topic_is_closed_within_it_is_whole_in_the_group(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with open_bot(open_home, fake, access="public", groups={"-100": {}}) as bot:
        text = f"@test_bot {' '.join(f'word{number}' for number in range(900))}"
        chat = '{"id": -100, "type": "supergroup"}'
        fake.will_answer("sendMessage", f'{{"ok": true, "result": {{"message_id": 1, "date": 1, "chat": {chat}}}}}')
        fake.lost_topics[-100, 5] = "TOPIC_CLOSED"
        fake.write(text, sender=ANN, chat=FAMILY, **TOPIC)
        await fake.until(lambda: any("word899" in each for each in fake.texts(-100)))
        await bot.settles()
        assert " ".join(fake.texts(-100)).split() == f"{MOVED}echo: {text}".split()


@requirement("channels:1")
async def test_a_chat_whose_general_topic_is_closed_is_given_up_and_not_moved_again(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with open_bot(open_home, fake, access="public", groups={"-100": {}}) as bot:
        fake.lost_topics |= {(-100, 5): "TOPIC_CLOSED", (-100, 0): "TOPIC_CLOSED"}
        fake.write("@test_bot hello", sender=ANN, chat=FAMILY, **TOPIC)
        await fake.until(lambda: sum(method == "sendMessage" for method, _ in fake.requests) == 2)
        await bot.settles()
        (dead,) = await bot.app.services.deliveries.list(OWNER, DeliveryFilter(), limit=5)
        assert (dead.status, dead.code, dead.moved_from) == (DeliveryStatus.DEAD, "channel_thread_gone", "5")
        assert fake.texts(-100) == []
