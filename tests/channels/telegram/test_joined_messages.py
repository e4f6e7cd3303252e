"""What belongs together is one message and one run: albums, pastes, comments with what they forward."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from antiphon.building import Parts
from antiphon.domain.classification import Integrity
from antiphon.domain.event import Event
from antiphon.domain.message import ImagePart, UserMessage
from antiphon.domain.session import SendOverride
from antiphon.testing.telegram import FakeTelegram, Json
from tests.channels.telegram.bots import ANN, BEN, FAMILY, OLGA, PIXEL, Bot, open_bot, until
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock, find_session, read_log

pytestmark = pytest.mark.anyio

MAIN = "agent:main:main"
ANNS = "agent:main:telegram:direct:7"
FAMILYS = "agent:main:telegram:group:-100"
FORWARD: dict[str, Any] = {"forward_origin": {"type": "hidden_user", "date": 1, "sender_user_name": "Mallory"}}


class Home:
    """A bot whose clock stands still unless a test lets time pass."""

    def __init__(self, bot: Bot, clock: ManualClock) -> None:
        self.bot = bot
        self.fake = bot.fake
        self._clock = clock

    async def takes_in(self) -> None:
        """Returns once every update is stored."""
        await self.fake.until(lambda: not self.fake.updates)

    async def waits(self, seconds: float) -> None:
        await self.takes_in()
        self._clock.pass_time(timedelta(seconds=seconds))

    async def messages(self, key: str, count: int) -> list[Event]:
        """The messages of people there, once there are so many."""

        async def has_come() -> bool:
            return len(await self.stored(key)) >= count

        await until(has_come)
        await self.bot.settles()
        found = await self.stored(key)
        assert len(found) == count
        return found

    async def is_held(self, count: int) -> bool:
        """Returns once so many messages wait."""

        async def is_so() -> bool:
            return await self.bot.app.database.read(_count_held) == count

        await until(is_so)
        return True

    async def stored(self, key: str) -> list[Event]:
        if await self.bot.app.database.read(_count_sessions, key) == 0:
            return []
        return [event for event in await read_log(self.bot.app, key) if event.type == "user_message"]


async def _count_sessions(query: Any, key: str) -> int:
    return (await query.fetch_one("SELECT count(*) FROM sessions WHERE key = ?", (key,)))[0]


async def _count_held(query: Any) -> int:
    return (await query.fetch_one("SELECT count(*) FROM held_messages"))[0]


@asynccontextmanager
async def home(open_home: OpenHome, fake: FakeTelegram, **more: Any) -> AsyncGenerator[Home]:
    clock = ManualClock()
    fake.now = lambda: clock.now().timestamp()
    settings = {"access": "public", "text_wait_ms": 300, **more}
    async with open_bot(open_home, fake, Parts(clock=clock), **settings) as bot:
        yield Home(bot, clock)


def add_picture(fake: FakeTelegram, caption: str | None = None, *, sender: Json = ANN, **more: Any) -> None:
    if caption is not None:
        more |= {"caption": caption, "caption_entities": more.get("caption_entities", [])}
    fake.write(None, sender=sender, photo=[fake.add_file(PIXEL)], **more)


def texts(events: list[Event]) -> list[str]:
    return [event.message.text for event in events if event.message is not None]


@requirement("groups:5")
async def test_an_album_is_one_message_with_its_pictures_and_one_run(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with home(open_home, fake) as there:
        add_picture(fake, "at sea", media_group_id="a")
        add_picture(fake, media_group_id="a")
        add_picture(fake, media_group_id="a")
        await there.waits(1.5)
        (event,) = await there.messages(ANNS, 1)
        assert isinstance(event.message, UserMessage) and event.message.text == "at sea"
        assert sum(isinstance(part, ImagePart) for part in event.message.content) == 3
        assert fake.texts(7) == ["echo: at sea"]


@requirement("groups:5")
async def test_each_part_lets_the_others_wait_again_and_five_seconds_are_the_most(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with home(open_home, fake) as there:
        for number in range(5):
            fake.write(f"{number} {'x' * 4000}", sender=ANN)
            await there.waits(1.4)
        fake.write("end", sender=ANN)
        await there.waits(1.5)
        found = texts(await there.messages(ANNS, 2))
        assert [line.split()[0] for line in found[0].splitlines()] == ["0", "1", "2", "3"]
        assert [line.split()[0] for line in found[1].splitlines()] == ["4", "end"]


@requirement("groups:5")
async def test_a_comment_and_its_forward_are_one_message(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with home(open_home, fake) as there:
        await there.bot.link_owner()
        fake.write("is that right?", sender=OLGA)
        fake.write("gate 7", sender=OLGA, **FORWARD)
        await there.waits(1.5)
        (event,) = await there.messages(MAIN, 1)
        assert isinstance(event.message, UserMessage) and event.message.text == "is that right?"
        assert [(each.text, each.name) for each in event.message.cites] == [("gate 7", "Mallory")]
        assert event.classification.integrity is Integrity.UNTRUSTED


@requirement("groups:5")
async def test_a_text_in_a_direct_chat_waits_a_moment_and_two_texts_are_two_messages(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with home(open_home, fake) as there:
        fake.write("one", sender=ANN)
        fake.write("two", sender=ANN)
        fake.write("of another", sender=BEN)
        await there.takes_in()
        assert await there.is_held(2)  # the first one went on: the second one showed that it stands alone
        await there.waits(0.3)
        assert texts(await there.messages(ANNS, 2)) == ["one", "two"]
        assert texts(await there.messages("agent:main:telegram:direct:8", 1)) == ["of another"]


@requirement("groups:5", "groups:1")
async def test_no_text_waits_in_a_group_and_an_album_is_for_the_bot_if_one_part_is(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with home(open_home, fake, groups={"-100": {}}) as there:
        fake.write("@test_bot hello", sender=ANN, chat=FAMILY)
        await there.messages(FAMILYS, 1)
        mention = [{"type": "mention", "offset": 0, "length": 9}]
        add_picture(fake, media_group_id="a", chat=FAMILY)
        add_picture(fake, "@test_bot look", media_group_id="a", chat=FAMILY, caption_entities=mention)
        fake.write("@test_bot between", sender=BEN, chat=FAMILY)
        await there.waits(1.5)
        found = await there.messages(FAMILYS, 3)
        assert texts(found) == ["@test_bot hello", "@test_bot look", "@test_bot between"]
        assert found[1].message is not None and len(found[1].message.content) == 3
        add_picture(fake, media_group_id="b", chat=FAMILY)
        add_picture(fake, media_group_id="b", chat=FAMILY)
        await there.waits(1.5)
        last = (await there.messages(FAMILYS, 4))[-1]
        assert last.message is not None and last.message.text.splitlines() == ["[photo: photo.jpg, not fetched]"] * 2
        assert len(fake.texts(-100)) == 3


@requirement("groups:5", "channels:3")
async def test_a_command_waits_for_nothing_joins_nothing_and_acts_after_what_was_written(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with home(open_home, fake) as there:
        await there.bot.link_owner()
        fake.write("remember this", sender=OLGA)
        fake.write("/send off", sender=OLGA)
        fake.write("gate 7", sender=OLGA, **FORWARD)
        await there.takes_in()
        assert (await find_session(there.bot.app, MAIN)).send_policy is SendOverride.DENY
        assert texts(await there.stored(MAIN)) == ["remember this"]
        await there.waits(1.5)
        assert texts(await there.messages(MAIN, 2)) == ["remember this", "gate 7"]


@requirement("groups:5")
async def test_an_album_of_a_hundred_is_several_messages_in_order(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with home(open_home, fake) as there:
        await there.bot.link_owner()
        for number in range(100):
            add_picture(fake, str(number), sender=OLGA, media_group_id="a")
        await there.waits(1.5)
        found = texts(await there.messages(MAIN, 4))
        assert "\n".join(found).split() == [str(number) for number in range(100)]


@requirement("groups:5")
async def test_a_paste_whose_parts_begin_like_commands_is_one_message(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with home(open_home, fake) as there:
        fake.write(f"/* begin {'x' * 4000}", sender=ANN)
        fake.write("/usr/bin/end", sender=ANN)
        await there.waits(1.5)
        (found,) = texts(await there.messages(ANNS, 1))
        assert found.startswith("/* begin") and found.endswith("\n/usr/bin/end")


@requirement("groups:5", "channels:1")
async def test_a_part_that_comes_again_is_recognised(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with home(open_home, fake) as there:
        fake.write("x" * 4000, sender=ANN)
        last = fake.write("end", sender=ANN)
        await there.takes_in()
        fake.add_update("message", last)
        await there.waits(1.5)
        await there.messages(ANNS, 1)
        fake.add_update("message", last)
        await there.waits(1.5)
        (found,) = texts(await there.messages(ANNS, 1))
        assert found.splitlines()[1:] == ["end"]
