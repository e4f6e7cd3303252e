"""The network between Telegram and the gateway breaks at any byte: nothing is lost, and nothing is stored twice."""

from collections import Counter
from datetime import timedelta

import anyio
import pytest

from antiphon.building import Parts
from antiphon.channels.account_loop import Pauses
from antiphon.channels.telegram.client import TelegramClient
from antiphon.channels.telegram.loop import TelegramLoop
from antiphon.channels.telegram.settings import TelegramSettings
from antiphon.domain.message import UserMessage, text_of
from antiphon.testing.telegram import FakeTelegram, person
from tests.channels.telegram.bots import Bot, open_bot, pass_time
from tests.channels.telegram.cutting_proxy import CuttingProxy, cutting
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock, read_log
from tests.shards import shard

pytestmark = pytest.mark.anyio

CHATS = 10
SEED = 17
SOON = timedelta(milliseconds=1)


@requirement("channels:1")
async def test_each_message_is_stored_once_and_each_reply_seen(
    open_home: OpenHome, fake: FakeTelegram, is_soak: bool
) -> None:
    most = shard().share(100_000) if is_soak else 1_000
    clock = ManualClock()
    async with (
        cutting(fake.port, shard().seed(SEED), most) as proxy,
        open_bot(open_home, fake, Parts(clock=clock), access="public", api_base=proxy.address) as bot,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(pass_time, bot, clock)
        loop = quick_loop(bot, proxy)
        bot.app.channels.stop()
        tasks.start_soon(loop.run)
        rounds = 0
        while proxy.cuts < most:
            rounds += 1
            for chat in range(1, CHATS + 1):
                fake.write(f"{rounds} of {chat}", sender=person(chat, f"P{chat}"))
            for chat in range(1, CHATS + 1):
                await fake.until(lambda chat=chat, now=rounds: f"echo: {now} of {chat}" in fake.texts(chat))
        await bot.settles()
        for chat in range(1, CHATS + 1):
            wanted = [f"{each} of {chat}" for each in range(1, rounds + 1)]
            log = await read_log(bot.app, f"agent:main:telegram:direct:{chat}")
            assert [text_of(each.message.content) for each in log if isinstance(each.message, UserMessage)] == wanted
            seen = Counter(fake.texts(chat))
            assert seen.keys() == {f"echo: {text}" for text in wanted}
        repeated = sum(len(fake.texts(chat)) - rounds for chat in range(1, CHATS + 1))
        assert repeated <= proxy.cuts_of_answers, "only a text whose answer was lost may be seen twice"
        tasks.cancel_scope.cancel()


def quick_loop(bot: Bot, proxy: CuttingProxy) -> TelegramLoop:
    """The same loop without long pauses after failures."""
    settings = TelegramSettings(token=bot.fake.token, api_base=proxy.address)
    return TelegramLoop(
        settings,
        TelegramClient(settings),
        bot.app.inside.reception,
        bot.app.inside.accounts,
        clock=bot.app.services.clock,
        secret="",
        pauses=Pauses(SOON, SOON),
    )
