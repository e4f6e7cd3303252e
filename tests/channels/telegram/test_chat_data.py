"""Whose data a chat is from its beginning, if `flow.chats` says that it is its people's. Contract: flow 2."""

from typing import Any

import pytest

from antiphon.building import App
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import PUBLIC, Classification, Level
from antiphon.domain.message import text_content
from antiphon.domain.person import PersonRole
from antiphon.domain.session import Session
from antiphon.engine.sessions.sessions import SessionAttributes
from antiphon.store.runs import RunFilter
from antiphon.testing.telegram import FakeTelegram, Json, person
from tests.channels.telegram.bots import ANN, OLGA, Bot, open_bot
from tests.channels.telegram.test_group_members import FAMILY, ROOM, invite
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call

pytestmark = pytest.mark.anyio

OWN: dict[str, Any] = {"flow__chats": "own", "tools__sessions__visibility": "agent"}
MAIN, ANNS = "agent:main:main", "agent:main:telegram:direct:7"
GROUP = f"agent:main:telegram:group:{ROOM}"


def of(person: str) -> Classification:
    return Classification(Level.PUBLIC, person=f"person:{person}")


async def session(app: App, key: str) -> Session:
    return (await app.services.sessions.get(OWNER, app.services.sessions.target(key))).session


async def base(app: App, key: str) -> Classification:
    return (await session(app, key)).base


async def told(bot: Bot, text: str, sender: Json = OLGA, chat: Json | None = None) -> str:
    """What is said last there, once all that follows from the text is done."""
    bot.fake.write(text, sender=sender, chat=chat)
    await bot.settles()
    return bot.fake.texts((chat or sender)["id"])[-1]


@requirement("flow:2")
async def test_a_direct_chat_is_its_persons_and_a_group_what_its_members_share(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with open_bot(open_home, fake, access="public", groups={str(ROOM): {}}, **OWN) as bot:
        await bot.link_owner()
        await bot.says("the biopsy was benign")
        await bot.says("my diary", sender=ANN)  # nobody knew her before this message
        await bot.says("dinner at six", chat=FAMILY)
        assert await base(bot.app, MAIN) == of("owner")
        assert (await base(bot.app, ANNS)).person not in (None, "person:owner")
        assert await base(bot.app, GROUP) == PUBLIC
        for sender, key in ((ANN, MAIN), (ANN, GROUP), (OLGA, ANNS)):
            assert '"not_found"' in await told(bot, to_call("sessions_history", sessionKey=key), sender), key
        assert '"not_found"' in await told(bot, to_call("sessions_history", sessionKey=MAIN), chat=FAMILY)
        seen = await told(bot, to_call("sessions_history", sessionKey=GROUP))
        assert "dinner at six" in seen, "what all may read"


@requirement("flow:2", "sessions:4")
async def test_what_is_opened_elsewhere_is_its_persons_too(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake, access__roles__user__agents=["main"], **OWN) as bot:
        services = bot.app.services
        bea = (await services.people.invite(OWNER, "Bea", PersonRole.USER)).person.principal
        desk = services.sessions.target("api:desk")
        assert (await services.sessions.open(OWNER, desk)).session.base == of("owner")
        hers, generated = services.sessions.target("web:bea"), SessionAttributes(is_generated=True)
        assert (await services.sessions.open(bea, hers, attributes=generated)).session.base == of("bea")
        await bot.link_owner()
        await told(bot, "/session new Garden")
        await bot.says("hello")
        assert await base(bot.app, f"{MAIN}:chat:garden") == of("owner")


@requirement("flow:2", "sessions:4")
async def test_a_main_session_is_its_owners_whoever_opens_it(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake, **OWN) as bot:
        target = bot.app.services.sessions.target("main")
        posted = await bot.app.services.inbox.post(OWNER, target, text_content("hello"))
        assert posted.triggered and await base(bot.app, MAIN) == of("owner")


@requirement("flow:2", "sessions:6")
async def test_a_group_begins_at_what_its_members_share_when_it_begins_anew(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    settings: Any = {"groups": {str(ROOM): {"members": ["owner", "ann"]}}, "clearance": {"level": "CONFIDENTIAL"}}
    async with open_bot(open_home, fake, **settings, **OWN) as bot:
        await bot.link_owner()
        await invite(bot.app, "Ann", 7)
        await bot.says("hello", chat=FAMILY)
        assert await base(bot.app, GROUP) == Classification(Level.CONFIDENTIAL, person="person:ann")
        await told(bot, "hello", chat=FAMILY)
        bot.fake.write("and me?", sender=person(8, "Eve"), chat=FAMILY)
        await told(bot, "hello again", chat=FAMILY)
        (run, *_) = await bot.app.services.runs.list(OWNER, RunFilter(), limit=1)
        assert run.code == "place_clearance", "a stranger came, who may read less"
        await bot.app.services.resets.reset(OWNER, bot.app.services.sessions.target(GROUP))
        await bot.says("hello all", chat=FAMILY)
        assert (await session(bot.app, GROUP)).base == PUBLIC


@requirement("flow:2")
async def test_a_channel_that_may_not_have_the_persons_data_opens_no_session(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    closed = {"level": "PUBLIC", "person": "person:owner"}
    async with open_bot(open_home, fake, access="public", clearance=closed, **OWN) as bot:
        await bot.link_owner()
        await bot.says("hello")
        fake.write("hello", sender=ANN)
        await bot.settles()
        target = bot.app.services.sessions.target(ANNS)
        assert not [each for each in fake.texts(7) if "echo" in each]
        with pytest.raises(Exception, match="not found"):
            await bot.app.services.sessions.get(OWNER, target)


@requirement("flow:2")
async def test_without_the_setting_a_chat_is_nobodys(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake, access="public", groups={str(ROOM): {}}) as bot:
        await bot.link_owner()
        await bot.says("hello")
        await bot.says("hello", sender=ANN)
        assert await base(bot.app, MAIN) == PUBLIC
        assert (await base(bot.app, ANNS)).person is None
