"""Somebody looks for what others said, or takes it over, by the commands for a chat's conversations."""

import re
from dataclasses import dataclass

import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.person import PersonRole
from antiphon.testing.telegram import FakeTelegram, Json
from tests.attacks.attempt import Attacker, Attempt, Door, rows
from tests.channels.telegram.bots import ANN, BEN, OLGA, Bot, open_bot
from tests.channels.telegram.conftest import fake
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.stage import read_log

pytestmark = pytest.mark.anyio
__all__ = ["fake"]

USERS: Json = {"access__roles": {"user": {"agents": ["main"]}}}
WORDS = "the vault opens at nine"


async def makes_user(bot: Bot, sender: Json) -> None:
    """The sender's account becomes that of a new user."""
    services, name = bot.app.services, sender["first_name"]
    user = (await services.people.invite(OWNER, name, PersonRole.USER)).person
    bot.fake.write(f"/link {(await services.links.make_code(user.principal)).code} yes", sender=sender)
    await bot.settles()


async def answer(bot: Bot, sender: Json, text: str) -> str:
    """What the sender reads next."""
    count = len(bot.fake.texts(sender["id"]))
    bot.fake.write(text, sender=sender)
    await bot.settles()
    return "\n".join(bot.fake.texts(sender["id"])[count:])


async def switch(bot: Bot, sender: Json) -> str:
    """Goes on from the newest earlier conversation."""
    found = re.search("#[0-9a-f]{3}", await answer(bot, sender, "/session list"))
    assert found is not None
    return await answer(bot, sender, f"/session switch {found[0]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning(Attempt):
    """Ann begins a conversation of her own, then Ben one that would have the same key."""

    command: str
    """`switch` for going on from the newest earlier conversation."""


BEGINNINGS = [
    Beginning(attacker=Attacker.USER, door=Door.TELEGRAM, what="goes on from the same conversation", command="switch"),
    Beginning(attacker=Attacker.USER, door=Door.TELEGRAM, what="takes the next number", command="/session new"),
    Beginning(attacker=Attacker.USER, door=Door.TELEGRAM, what="takes the name", command="/session new Vault plans"),
]


@requirement("channels:3", "access:1", "sessions:8")
@pytest.mark.parametrize("attempt", rows(*BEGINNINGS))
async def test_a_new_conversation_is_never_one_that_somebody_else_began(
    open_home: OpenHome, fake: FakeTelegram, attempt: Beginning
) -> None:
    async with open_bot(open_home, fake, access="public", session__scope="global", **USERS) as bot:
        for sender in (ANN, BEN):
            await makes_user(bot, sender)
            await bot.says("hello", sender=sender)
        await bot.app.services.resets.reset(OWNER, bot.app.services.sessions.target("main"))
        keys: list[str] = []
        for sender, words in ((ANN, WORDS), (BEN, "and mine")):
            begun = await (switch(bot, sender) if attempt.command == "switch" else answer(bot, sender, attempt.command))
            assert "New messages in this chat will use it." in begun
            await bot.says(words, sender=sender)
            keys.append((await answer(bot, sender, "/session")).splitlines()[-1])
        assert keys[0] != keys[1]
        said = [event.message.text for event in await read_log(bot.app, keys[0]) if event.message is not None]
        assert WORDS in said and "and mine" not in said


def safe() -> str:
    """Reads what is in the safe."""
    return WORDS


SAFE = tool(safe, effects=["reads"], classification={"level": "CONFIDENTIAL"})
CLEARED: Json = {"clearance": {"level": "CONFIDENTIAL"}, "tools__approval": {"require": [], "people": []}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking(Attempt):
    """An owner has said something secret in a conversation of everybody's, which is over."""

    asks: str
    """`switch` for going on from it."""
    then: str = "what did he say?"


LOOKINGS = [
    Looking(attacker=Attacker.USER, door=Door.TELEGRAM, what="lists what was said", asks="/session list"),
    Looking(attacker=Attacker.USER, door=Door.TELEGRAM, what="goes on and asks", asks="switch"),
    Looking(
        attacker=Attacker.USER,
        door=Door.TELEGRAM,
        what="goes on and reads the log by a tool",
        asks="switch",
        then=to_call("sessions_history", sessionKey="current"),
    ),
]


@requirement("channels:3", "sessions:8", "flow:3")
@pytest.mark.parametrize("attempt", rows(*LOOKINGS))
async def test_nothing_above_the_user_is_found_in_an_earlier_conversation(
    open_home: OpenHome, fake: FakeTelegram, attempt: Looking
) -> None:
    settings = {"access": "public", "session__scope": "global", **USERS, **CLEARED}
    async with open_bot(open_home, fake, Parts(tools=[SAFE]), **settings) as bot:
        await bot.link_owner()
        await makes_user(bot, BEN)
        await bot.says("hello", sender=BEN)
        assert WORDS in await answer(bot, OLGA, to_call("safe"))
        await bot.app.services.resets.reset(OWNER, bot.app.services.sessions.target("main"))
        said = await (switch(bot, BEN) if attempt.asks == "switch" else answer(bot, BEN, attempt.asks))
        assert "above the clearance" in said or attempt.asks != "switch", "no copy begins that may not speak here"
        assert WORDS not in said + await answer(bot, BEN, attempt.then) + "".join(fake.texts(BEN["id"]))
        assert (await answer(bot, BEN, "/session")).startswith("Session: Main")
