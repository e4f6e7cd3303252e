"""What Telegram, its people and its clocks can do wrong: nothing is lost, doubled, or answered in the wrong chat."""

import json
from datetime import timedelta
from typing import Any

import anyio
import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.message import UserMessage, text_of
from antiphon.store.database import Transaction
from antiphon.testing.faults import Fault
from antiphon.testing.telegram import FakeTelegram, Json, person
from tests.channels.telegram.bots import ANN, BEN, FAMILY, OLGA, Bot, open_bot, pass_time, until
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.deliveries.test_live import Writer
from tests.engine.stage import ManualClock, read_log

pytestmark = pytest.mark.anyio

ANNS = "agent:main:telegram:direct:7"
CHAT: Json = {"id": 7, "type": "private", "first_name": "Ann"}
NAMELESS = person(9, "\x00\x1b[2J\u202e\u2066", last_name="\u200b\u200f")


def message(**more: Any) -> tuple[str, Json]:
    return "message", {"message_id": 1, "date": 1, "chat": CHAT, "from": ANN, **more}


def pressed(**more: Any) -> tuple[str, Json]:
    shown = {"message_id": 1, "date": 1, "chat": CHAT, "from": {"id": 7001, "is_bot": True, "first_name": "Bot"}}
    return "callback_query", {"id": "1", "from": ANN, "chat_instance": "1", "message": shown, "data": "x:once", **more}


IGNORED: dict[str, tuple[str, Json]] = {
    "an unknown kind": ("a_new_kind", {"x": [1]}),
    "an edit": ("edited_message", {"message_id": 1, "date": 1, "chat": CHAT, "from": ANN, "text": "edited"}),
    "a reaction": ("message_reaction", {"chat": CHAT, "user": ANN, "message_id": 1, "new_reaction": []}),
    "a post of a channel": ("channel_post", {"message_id": 1, "date": 1, "chat": {"id": -5, "type": "channel"}}),
    "an anonymous admin": message(chat=FAMILY, sender_chat=FAMILY, text="anonymous"),
    "another bot": message(**{"from": {**BEN, "is_bot": True}, "text": "beep"}),
    "the bot itself": message(**{"from": {"id": 7001, "is_bot": False, "first_name": "I"}, "text": "me"}),
    "no text": message(),
    "a form that is wrong": ("message", {"message_id": "?", "chat": {"id": 3, "type": []}}),
    "no sender": ("message", {"message_id": 1, "date": 1, "chat": CHAT, "text": "from nobody"}),
    "a button of another bot's message": pressed(message={"message_id": 1, "chat": CHAT, "date": 1, "from": BEN}),
    "a button with foreign data": pressed(data="\u202e" * 8),
    "a button that a bot presses": pressed(**{"from": {**BEN, "is_bot": True}}),
    "a message of a thing that was deleted": pressed(message={"message_id": 1, "chat": CHAT, "date": 0}),
}


@pytest.mark.parametrize("what", IGNORED)
@requirement("channels:1", "groups:1")
async def test_what_is_no_message_stores_and_says_nothing_and_holds_up_nothing(
    open_home: OpenHome, fake: FakeTelegram, what: str
) -> None:
    async with open_bot(open_home, fake, access="public", groups={"-100": {}}) as bot:
        kind, content = IGNORED[what]
        for _ in range(2):
            fake.add_update(kind, content)
        await bot.says("hello", sender=ANN)
        await bot.settles()
        assert fake.texts(7) == ["echo: hello"] and await words(bot) == ["hello"]
        assert {chat for chat, shown in fake.seen.items() if shown} == {7}


async def words(bot: Bot, key: str = ANNS) -> list[str]:
    log = await read_log(bot.app, key)
    return [text_of(each.message.content) for each in log if isinstance(each.message, UserMessage)]


@requirement("channels:1")
async def test_a_text_of_64_kib_is_stored_whole_and_answered_in_parts(open_home: OpenHome, fake: FakeTelegram) -> None:
    text = " ".join(f"word{number:06}" for number in range(64 * 1024 // 11))
    async with open_bot(open_home, fake, access="public", stream_interval_ms=500) as bot:
        fake.write(text, sender=ANN)
        await fake.until(lambda: any(text[-10:] in seen for seen in fake.texts(7)))
        await bot.settles()
        assert await words(bot) == [text]
        assert " ".join(fake.texts(7)).split() == f"echo: {text}".split()


@requirement("channels:1", "groups:2")
async def test_half_characters_and_names_of_control_characters_reach_nobody(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    given = {"message_id": 4, "date": 1, "chat": CHAT, "from": ANN, "text": "a\ud83db \ud83d\ude00"}
    answer = {"ok": True, "result": [{"update_id": 1, "message": given}]}
    fake.chats[7] = CHAT
    fake.will_answer("getUpdates", json.dumps(answer))
    async with open_bot(open_home, fake, access="public", groups={"-100": {}}) as bot:
        await fake.until(lambda: fake.texts(7))
        assert fake.texts(7) == ["echo: a\ufffdb \U0001f600"] and await words(bot) == ["a\ufffdb \U0001f600"]
        fake.write("@test_bot hello", sender=NAMELESS, chat=FAMILY)
        await fake.until(lambda: fake.texts(-100))
        names = [each.person.name for each in await bot.app.services.people.list(OWNER, after=None, limit=9)]
        assert len(names) == 3 and all(name.isprintable() for name in names)
        assert not any(mark in "".join(fake.texts(-100)) for mark in "\x00\x1b\u202e\u2066\u200b")


@requirement("access:3")
async def test_a_code_that_is_replayed_or_guessed_links_nobody_and_is_told_to_its_sender_alone(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with open_bot(open_home, fake) as bot:
        made = await bot.app.services.links.make_code(OWNER)
        fake.write(f"/link {made.code} yes", sender=OLGA)
        await fake.until(lambda: fake.texts(1))
        fake.write(f"/link {made.code} yes", sender=BEN)
        await fake.until(lambda: fake.texts(8))
        for _ in range(6):
            fake.write("/link ABCD2345", sender=BEN)
        later = await bot.app.services.links.make_code(OWNER)
        fake.write(f"/link {later.code} yes", sender=BEN)
        await bot.settles()
        owner = await bot.app.services.people.get(OWNER, "owner")
        assert [account.platform_id for account in owner.identities] == ["1"], "after five wrong ones, none is right"
        assert len(fake.texts(8)) == 1, "a stranger gets one answer an hour"


@requirement("channels:1")
async def test_a_clock_that_goes_back_and_ahead_loses_and_doubles_nothing(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    clock = ManualClock()
    async with open_bot(open_home, fake, Parts(clock=clock), access="public") as bot:
        texts = list[str]()
        for number, days in enumerate((0, 400, -800, 400)):
            clock.pass_time(timedelta(days=days))
            bot.app.deliverer.wake()
            texts.append(f"said {number}")
            fake.write(texts[-1], sender=ANN, date=1_900_000_000 - 300_000_000 * number)
            await fake.until(lambda now=number: f"echo: said {now}" in fake.texts(7))
        await bot.settles()
        assert await words(bot) == texts and fake.texts(7) == [f"echo: {text}" for text in texts]


@requirement("channels:1")
@pytest.mark.parametrize("trouble", ["polled twice", "revoked", "wrong JSON", "bad gateway"])
async def test_a_trouble_of_the_platform_loses_nothing(open_home: OpenHome, fake: FakeTelegram, trouble: str) -> None:
    clock = ManualClock()
    async with open_bot(open_home, fake, Parts(clock=clock), access="public") as bot:
        await bot.says("before", sender=ANN)
        token = fake.token
        if trouble == "revoked":
            fake.token = "7001:another-token"
        else:
            faults = {"polled twice": Fault.CONFLICT, "wrong JSON": Fault.WRONG_JSON, "bad gateway": Fault.BAD_GATEWAY}
            fake.will("getUpdates", *[faults[trouble]] * 2)
        fake.write("meanwhile", sender=ANN)
        if trouble == "revoked":
            await until(lambda: is_in_trouble(bot))
            fake.token = token
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pass_time, bot, clock)
            await fake.until(lambda: "echo: meanwhile" in fake.texts(7))
            tasks.cancel_scope.cancel()
        await bot.settles()
        assert await words(bot) == ["before", "meanwhile"] and fake.texts(7) == ["echo: before", "echo: meanwhile"]


async def is_in_trouble(bot: Bot) -> bool:
    rows = await bot.app.database.read(_troubles)
    return bool(rows)


async def _troubles(query: Any) -> list[Any]:
    return await query.fetch_all("SELECT trouble FROM channel_accounts WHERE trouble IS NOT NULL")


@requirement("groups:3")
async def test_an_empty_answer_is_told_in_one_sentence(open_home: OpenHome, fake: FakeTelegram) -> None:
    writer = Writer()
    async with open_bot(open_home, fake, Parts(runner=writer), access="public") as bot:
        fake.write("hello", sender=ANN)
        writer.end(await writer.begins(), "")
        await bot.settles()
        (told,) = fake.texts(7)
        assert told.endswith("ask again.") and await words(bot) == ["hello"]


@requirement("channels:1")
async def test_damage_of_one_chat_holds_up_no_other(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake, access="public") as bot:
        await bot.says("hello", sender=ANN)
        await bot.settles()

        async def damage(tx: Transaction) -> None:
            row = await tx.fetch_one("SELECT id FROM sessions WHERE key = ?", (ANNS,))
            assert row is not None
            await tx.execute("UPDATE sessions SET metadata = '{' WHERE id = ?", row)

        await bot.app.database.run(damage)
        fake.write("lost", sender=ANN)
        await bot.says("hello", sender=BEN)
