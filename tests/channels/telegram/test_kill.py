"""kill -9 of the real program while a bot talks: each update is stored once, and each reply is seen."""

import json
import random
import subprocess
from pathlib import Path

import pytest

from antiphon.app import open_app
from antiphon.domain.message import UserMessage, text_of
from antiphon.testing.telegram import FakeTelegram, person
from tests.channels.telegram.bots import Bot, settings_of
from tests.claims import requirement
from tests.cli.program import COMMAND, environment
from tests.engine.stage import config, read_log
from tests.processes import ending
from tests.shards import shard

pytestmark = pytest.mark.anyio

CHATS = (5, 6, 7)
SEED = 17
MOST_REQUESTS = 12
"""That a life lives to see, beyond those of its start."""


@requirement("channels:1")
async def test_a_killed_gateway_loses_no_message_and_stores_none_twice(
    fake: FakeTelegram, tmp_path: Path, is_soak: bool
) -> None:
    drawn, lives = random.Random(shard().seed(SEED)), shard().share(1_000) if is_soak else 4
    home, file = tmp_path / "home", tmp_path / "antiphon.toml"
    settings = settings_of(fake, access="public", queue_mode="enqueue")
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items() if name != "token"]
    file.write_text("\n".join(["[access]", "messages_per_minute = 100000", "[channels.telegram]", *lines, ""]), "utf-8")
    variables = {"ANTIPHON_TELEGRAM_TOKEN": fake.token}
    for life in range(lives):
        for chat in CHATS:
            fake.write(f"{life} of {chat}", sender=person(chat, f"P{chat}"))
        polled = _polls_of(fake)
        command = [*COMMAND, "serve", "--home", str(home), "--config", str(file), "--port", "0"]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, env=environment(variables), stdout=quiet, stderr=quiet)  # noqa: ASYNC220
        with ending(process):
            await fake.until(lambda polled=polled: _polls_of(fake) > polled, timeout_seconds=120)
            wanted = len(fake.requests) + drawn.randrange(MOST_REQUESTS)
            await fake.until(lambda wanted=wanted: len(fake.requests) >= wanted or not fake.updates)
    async with open_app(home, config(channels__telegram=settings, access__messages_per_minute=100_000)) as app:
        for chat in CHATS:
            texts = [f"{life} of {chat}" for life in range(lives)]
            await fake.until(lambda chat=chat, texts=texts: {f"echo: {each}" for each in texts} <= {*fake.texts(chat)})
            log = await read_log(app, f"agent:main:telegram:direct:{chat}")
            stored = [text_of(each.message.content) for each in log if isinstance(each.message, UserMessage)]
            assert stored == texts
        await Bot(app, fake).settles()
    repeated = sum(len(fake.texts(chat)) - lives for chat in CHATS)
    assert repeated <= lives * len(CHATS), "a kill may repeat the one text of a chat that was on its way"


def _polls_of(fake: FakeTelegram) -> int:
    return sum(method == "getUpdates" for method, _ in fake.requests)
