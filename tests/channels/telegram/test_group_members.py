"""What a group may have: what everybody in it may read, if the settings name its members. Contract: flow 2, 7."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from antiphon.agents.toolset import tool
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Classification, Level, NamedClassification
from antiphon.domain.person import Identity, PersonId, PersonRole
from antiphon.store import people
from antiphon.store.runs import RunFilter
from antiphon.testing.telegram import FakeTelegram, Json, group, person
from tests.channels.telegram.bots import OLGA, Bot, open_bot, until
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.deliveries.test_live import Writer
from tests.engine.stage import ManualClock

pytestmark = pytest.mark.anyio

ROOM = -100
FAMILY = group(ROOM, "Family")
ANN, EVE = person(7, "Ann"), person(8, "Eve")
SECRET = NamedClassification(level=Level.CONFIDENTIAL)
BOOKS = to_call("books")


def books() -> str:
    """Reads the books."""
    return "the books"


PARTS = Parts(tools=[tool(books, effects=["reads"], classification={"level": "CONFIDENTIAL"})])


async def invite(app: App, name: str, account: int) -> str:
    """A user with that account, who may read the books."""
    id = (await app.services.people.invite(OWNER, name, PersonRole.USER)).person.id
    identity = Identity(channel="telegram", account="default", platform_id=str(account))
    await app.database.run(people.insert_identity, identity, PersonId(id), app.services.clock.now_ms())
    await app.services.people.clear(OWNER, id, SECRET)
    return id


@asynccontextmanager
async def room(open_home: OpenHome, fake: FakeTelegram, **settings: Any) -> AsyncGenerator[Bot]:
    """A group of the owner and Ann, both of whom may read the books."""
    settings = {"members": ["owner", "ann"], **settings}
    async with open_bot(
        open_home, fake, PARTS, clearance={"level": "CONFIDENTIAL"}, groups={str(ROOM): settings}
    ) as bot:
        await bot.link_owner()
        await invite(bot.app, "Ann", 7)
        yield bot


async def asked(bot: Bot) -> str:
    """What the group is told last when the owner asks for the books; empty if it is told nothing."""
    before = len(bot.fake.texts(ROOM))
    await says(bot, BOOKS)
    return "".join(bot.fake.texts(ROOM)[before:])


async def says(bot: Bot, text: str, sender: Json = OLGA, chat: Json = FAMILY) -> None:
    bot.fake.write(text, sender=sender, chat=chat)
    await bot.settles()


async def sees(bot: Bot, **change: Any) -> None:
    """A message of the platform itself in the group."""
    bot.fake.write(None, sender=OLGA, chat=FAMILY, **change)
    await bot.settles()


@requirement("flow:2", "flow:7")
async def test_a_group_has_what_all_its_members_may_read(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with room(open_home, fake) as bot:
        assert await asked(bot) == "the books"
        await bot.app.services.people.clear(OWNER, "ann", None)
        assert "the books" not in await asked(bot)


@requirement("flow:2", "flow:7")
@pytest.mark.parametrize("members", [[], ["owner", "nobody"], ["ann"]], ids=["unnamed", "unknown", "named"])
async def test_a_member_whom_nobody_knows_and_an_unnamed_group_get_public_data(
    open_home: OpenHome, fake: FakeTelegram, members: list[str]
) -> None:
    async with room(open_home, fake, members=members) as bot:
        assert (await asked(bot) == "the books") is (members == ["ann"])


@requirement("flow:2", "flow:7")
@pytest.mark.parametrize("by", ["joining", "writing"])
async def test_a_stranger_in_a_group_makes_it_public_until_they_leave(
    open_home: OpenHome, fake: FakeTelegram, by: str
) -> None:
    async with room(open_home, fake) as bot:
        assert await asked(bot) == "the books"
        if by == "joining":
            await sees(bot, new_chat_members=[EVE])
        else:
            await says(bot, "hello", EVE)
        assert await asked(bot) == ""
        (run, *_) = await bot.app.services.runs.list(OWNER, RunFilter(), limit=1)
        assert run.code == "place_clearance"
        await sees(bot, left_chat_member=EVE)
        assert await asked(bot) == "the books"


@requirement("flow:2", "flow:7")
async def test_somebody_who_is_not_named_counts_as_what_they_may_read(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with room(open_home, fake) as bot:
        await invite(bot.app, "Eve", 8)
        await sees(bot, new_chat_members=[EVE, person(9001, "Helper", is_bot=True)])
        assert await asked(bot) == "the books"
        await bot.app.services.people.suspend(OWNER, "eve")
        assert await asked(bot) == ""


@requirement("flow:2", "groups:1")
async def test_a_group_that_moves_keeps_those_who_were_met_there(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with room(open_home, fake) as bot:
        assert await asked(bot) == "the books"
        new = group(-2000, "Family")
        bot.fake.write(None, sender=OLGA, chat=new, new_chat_members=[EVE])  # before the bot hears that it moved
        bot.fake.write(None, sender=OLGA, chat=FAMILY, migrate_to_chat_id=-2000)
        await bot.settles()
        before = len(bot.fake.texts(-2000))
        await says(bot, BOOKS, chat=new)
        assert "the books" not in "".join(bot.fake.texts(-2000)[before:])


@requirement("flow:7", "channels:1")
async def test_a_stranger_who_joins_sees_no_more_of_a_reply_that_is_being_written(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    writer, clock, secret = Writer(), ManualClock(), {"level": "CONFIDENTIAL"}
    parts, groups = Parts(runner=writer, clock=clock), {str(ROOM): {"members": ["owner"]}}
    async with open_bot(open_home, fake, parts, clearance=secret, groups=groups) as bot:
        await bot.link_owner()
        bot.fake.write("what is the plan?", sender=OLGA, chat=FAMILY)
        context = await writer.begins()
        context.surroundings = Classification(Level.CONFIDENTIAL)
        context.emit("The plan")
        await until(lambda: is_shown(bot, clock, "The plan"))
        fake.write(None, sender=OLGA, chat=FAMILY, new_chat_members=[EVE])
        await fake.until(lambda: not fake.updates)
        context.emit(" is bold.")
        for _ in range(3):
            clock.pass_time(timedelta(seconds=25))
            await bot.app.live.wait_idle()
        assert fake.texts(ROOM) == ["The plan"]
        writer.end(context, "The plan is bold.")
        await bot.settles()
        assert not any("bold" in text for text in fake.texts(ROOM))


async def is_shown(bot: Bot, clock: ManualClock, words: str) -> bool:
    clock.pass_time(timedelta(seconds=2))
    await bot.app.live.wait_idle()
    return bot.fake.texts(ROOM) == [words]
