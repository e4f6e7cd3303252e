"""One process serves the bot; what is wrong is told; another process takes over."""

from datetime import timedelta
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from msgspec.structs import replace
from telegram.error import RetryAfter

from antiphon.building import App, Parts
from antiphon.channels.telegram.bot import TelegramBot
from antiphon.channels.telegram.client import LONGEST_WISH, wished_pause
from antiphon.channels.telegram.loop import OTHER_POLLS, UNREACHABLE, WEBHOOK_IS_SET, WRONG_TOKEN
from antiphon.channels.telegram.settings import WEBHOOK_PATH, TelegramSettings
from antiphon.domain.ids import ProcessId
from antiphon.engine.chats.accounts import Accounts
from antiphon.testing.faults import Fault
from antiphon.testing.telegram import FakeTelegram
from tests.channels.telegram.bots import ANN, BEN, open_bot, until
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock

pytestmark = pytest.mark.anyio


async def until_trouble(app: App, trouble: str | None) -> None:
    async def is_so() -> bool:
        return [row.trouble for row in await app.inside.accounts.list()] == [trouble]

    await until(is_so)


@pytest.mark.parametrize(
    ("fault", "trouble"),
    [(Fault.CONFLICT, OTHER_POLLS), (Fault.BAD_GATEWAY, UNREACHABLE), (Fault.DROP, UNREACHABLE)],
    ids=["conflict", "bad gateway", "drop"],
)
async def test_a_trouble_of_polling_is_noted_until_it_is_over(
    open_home: OpenHome, fake: FakeTelegram, fault: Fault, trouble: str
) -> None:
    fake.will("getUpdates", *[fault] * 2)
    async with open_bot(open_home, fake, access="public") as bot:
        await until_trouble(bot.app, trouble)
        await bot.says("hello", sender=ANN)
        await until_trouble(bot.app, None)


async def test_a_revoked_token_is_noted(open_home: OpenHome, fake: FakeTelegram) -> None:
    token, fake.token = fake.token, "7001:another-token"
    async with open_bot(open_home, fake, access="public", token=token) as bot:
        await until_trouble(bot.app, WRONG_TOKEN)
        fake.token = token
        await bot.says("hello", sender=ANN)


async def test_a_webhook_of_somebody_else_is_left_alone_and_told(open_home: OpenHome, fake: FakeTelegram) -> None:
    fake.webhook["url"] = "https://example.org/hook"
    async with open_bot(open_home, fake, access="public") as bot:
        await until_trouble(bot.app, WEBHOOK_IS_SET)
        assert fake.webhook["url"] == "https://example.org/hook"


async def test_a_webhook_that_antiphon_set_is_removed_when_it_polls(open_home: OpenHome, fake: FakeTelegram) -> None:
    fake.webhook["url"] = f"https://example.org{WEBHOOK_PATH}"
    async with open_bot(open_home, fake, access="public") as bot:
        await bot.says("hello", sender=ANN)


def another_loop(app: App, fake: FakeTelegram, clock: Any, tasks: TaskGroup) -> Any:
    """The loop of another process on the same database, which keeps its accounts in the tasks."""
    address = fake.base_url.removesuffix("/bot")
    bot = TelegramBot(TelegramSettings(token=fake.token, api_base=address))
    accounts = Accounts(app.database, ProcessId("proc_other"), clock)
    tasks.start_soon(accounts.run)
    return bot.loop(replace(app.inside, accounts=accounts))


@requirement("channels:1")
async def test_another_process_serves_the_bot_once_the_first_one_stops(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake, access="public") as bot, anyio.create_task_group() as tasks:
        await bot.says("hello", sender=ANN)
        other = another_loop(bot.app, fake, bot.app.services.clock, tasks)
        tasks.start_soon(other.run)
        bot.app.channels.stop()
        await bot.says("still there", sender=BEN)
        (row,) = await bot.app.inside.accounts.list()
        assert row.process == "proc_other"
        tasks.cancel_scope.cancel()


@requirement("channels:1")
async def test_a_process_that_was_given_up_stores_nothing_more(open_home: OpenHome, fake: FakeTelegram) -> None:
    clock = ManualClock()
    async with open_bot(open_home, fake, Parts(clock=clock), access="public") as bot:
        await bot.says("hello", sender=ANN)
        others = Accounts(bot.app.database, ProcessId("proc_other"), clock)
        clock.pass_time(timedelta(seconds=9))
        lease = await others.take_lease("telegram", "default")
        assert lease is not None
        fake.write("too late", sender=ANN)
        fake.write("much too late", sender=ANN)

        async def is_asking_again() -> bool:
            return (await bot.app.inside.accounts.list())[0].process == "proc_other"

        await until(is_asking_again)
        await others.release(lease)
        await fake.until(lambda: any("much too late" in text for text in fake.texts(7)))
        await bot.settles()
        assert len([text for text in fake.texts(7) if text == "echo: too late"]) <= 1


@pytest.mark.parametrize("method", ["getMe", "getWebhookInfo", "setMyCommands", "getUpdates"])
@pytest.mark.parametrize("answer", ["7", '{"id": "x", "url": 5}', "[" * 100_000], ids=["number", "types", "depth"])
async def test_answers_that_make_no_sense_end_nothing(
    open_home: OpenHome, fake: FakeTelegram, method: str, answer: str
) -> None:
    fake.will_answer(method, f'{{"ok": true, "result": {answer}}}')
    async with open_bot(open_home, fake, access="public") as bot:
        await bot.says("hello", sender=ANN)


@pytest.mark.parametrize("wish", ["-5", "NaN", '"x"', "{}", "null"])
async def test_a_pause_that_makes_no_sense_ends_nothing(open_home: OpenHome, fake: FakeTelegram, wish: str) -> None:
    said = f'{{"ok": false, "error_code": 429, "description": "wait", "parameters": {{"retry_after": {wish}}}}}'
    fake.will_answer("setMyCommands", said, status=429)
    async with open_bot(open_home, fake, access="public") as bot:
        await bot.says("hello", sender=ANN)


def test_a_pause_is_never_longer_than_an_hour() -> None:
    assert wished_pause(RetryAfter(7)) == timedelta(seconds=7)
    assert wished_pause(RetryAfter(10**9)) == LONGEST_WISH
