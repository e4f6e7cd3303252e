"""What people in Telegram hear if a provider fails, and of what an agent says beside its calls. Contract: groups 4."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from antiphon.agents.asking import RetryPolicy
from antiphon.building import Parts
from antiphon.domain.person import PersonRole
from antiphon.domain.telling import Cause, cut_short, sentence
from antiphon.testing import SERVER_ERROR, Call, Ending, Reply, Script, fake_provider
from antiphon.testing.telegram import FakeTelegram, Json
from tests.channels.telegram.bots import ANN, FAMILY, OLGA, Bot, settings_of
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import open_with_provider

pytestmark = pytest.mark.anyio

TRAIN = "The train leaves at 9:14."
STATUS = Call(name="session_status")


@asynccontextmanager
async def speaking(open_home: OpenHome, fake: FakeTelegram, answers: Script) -> AsyncGenerator[Bot]:
    """A bot whose model's provider answers that, one request after the other, each asked once."""
    parts = Parts(retry=RetryPolicy(attempts=1))
    telegram = settings_of(fake, access="public", groups={"-100": {}})
    async with (
        fake_provider(answers) as provider,
        open_with_provider(open_home, provider, parts, channels__telegram=telegram) as app,
    ):
        yield Bot(app, fake)


async def writes(bot: Bot, sender: Json, chat: Json | None = None) -> None:
    """Somebody writes; returns once all that follows is done."""
    bot.fake.write("@test_bot hi", sender=sender, chat=chat)
    await bot.settles()


@requirement("groups:4")
async def test_a_provider_that_fails_is_told_once_until_it_answers(open_home: OpenHome, fake: FakeTelegram) -> None:
    answers = [SERVER_ERROR, SERVER_ERROR, Reply(text="fine"), SERVER_ERROR, SERVER_ERROR, SERVER_ERROR]
    async with speaking(open_home, fake, answers) as bot:
        await bot.link_owner()
        (greeting,) = fake.texts(1)
        for _ in range(4):
            await writes(bot, OLGA)
        away = sentence(Cause.AWAY, PersonRole.OWNER).replace("`", "")
        assert [text.replace("`", "") for text in fake.texts(1)] == [greeting, away, "fine", away]
        await writes(bot, ANN)
        await writes(bot, ANN, FAMILY)
        assert fake.texts(7) == fake.texts(-100) == [sentence(Cause.AWAY, None)]


@requirement("runs:2", "groups:4")
async def test_what_was_said_beside_a_call_arrives_once(open_home: OpenHome, fake: FakeTelegram) -> None:
    answers = [Reply(text=TRAIN, calls=[STATUS]), Reply(), Reply(text=TRAIN, calls=[STATUS]), Reply(text="Noted.")]
    async with speaking(open_home, fake, answers) as bot:
        await writes(bot, ANN)
        assert fake.texts(7) == [TRAIN]
        await writes(bot, ANN)
        assert fake.texts(7) == [TRAIN, TRAIN, "Noted."]


@requirement("runs:2", "groups:4")
@pytest.mark.parametrize("is_group", [False, True], ids=["direct", "group"])
async def test_an_answer_that_breaks_off_stays_and_says_so(
    open_home: OpenHome, fake: FakeTelegram, is_group: bool
) -> None:
    cut = Reply(text=["The tra", "in lea", "ves"], ending=Ending.CUT, events=3)
    async with speaking(open_home, fake, [cut]) as bot:
        await writes(bot, ANN, FAMILY if is_group else None)
        (text,) = fake.texts(-100 if is_group else 7)
        assert text.startswith("The tra") and text == cut_short(text.partition("\n\n")[0], Cause.CUT)
