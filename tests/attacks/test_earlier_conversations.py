"""Somebody looks for what others said, or takes it over, by the commands for a chat's conversations."""

import re
from dataclasses import dataclass

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.person import PersonRole
from antiphon.testing.telegram import FakeTelegram, Json
from tests.attacks.attempt import Attacker, Attempt, Door, rows
from tests.channels.telegram.bots import ANN, BEN, Bot, open_bot
from tests.channels.telegram.conftest import fake
from tests.claims import requirement
from tests.conftest import OpenHome
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
