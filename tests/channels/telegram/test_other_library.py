"""The fake of Telegram serves another library than Antiphon's: aiogram, in an environment of its own."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from antiphon.testing.telegram import FakeTelegram
from tests.channels.telegram.bots import ANN, FAMILY
from tests.processes import ending
from tests.waiting import PROCESS_SECONDS

pytestmark = pytest.mark.anyio

PYTHON = Path(sys.executable).parent.parent / "aiogram" / "bin" / "python"
"""Made by `make test`."""
CLIENT = Path(__file__).with_name("aiogram_client.py")
TOPIC = {"message_thread_id": 9, "is_topic_message": True}


@contextmanager
def aiogram(fake: FakeTelegram, mode: str) -> Generator[None]:
    if not PYTHON.exists():
        pytest.skip("aiogram is not installed: make setup-clients")
    address = fake.base_url.removesuffix("/bot")
    with ending(subprocess.Popen([PYTHON, CLIENT, fake.token, address, mode], stdin=subprocess.PIPE)) as process:
        assert process.stdin is not None
        try:
            yield
        finally:
            process.stdin.close()
            process.kill()
            process.wait(PROCESS_SECONDS)


async def test_a_bot_of_another_library_polls_answers_and_reads_files(fake: FakeTelegram) -> None:
    with aiogram(fake, "poll"):
        fake.write("hello", sender=ANN)
        await fake.until(lambda: fake.texts(7) == ["echo: hello"], timeout_seconds=PROCESS_SECONDS)
        (message,) = fake.messages(7)
        assert fake.drafts == {(7, 1): "ec"} and "reply_markup" in message
        fake.press("pressed", sender=ANN, chat=7, message_id=message["message_id"])
        await fake.until(lambda: fake.texts(7) == ["Ann: pressed"])
        fake.write("in a topic", sender=ANN, chat=FAMILY, **TOPIC)
        await fake.until(lambda: fake.texts(-100, 9) == ["echo: in a topic"])
        fake.write(None, sender=ANN, document=fake.add_file(b"in the file", file_name="a.txt"))
        await fake.until(lambda: fake.texts(7)[1:] == ["read: in the file"])
        fake.write("delete", sender=ANN)
        await fake.until(lambda: [method for method, _ in fake.requests].count("deleteMessage") == 1)
        await fake.until(lambda: not fake.updates)
        assert fake.texts(7)[1:] == ["read: in the file"]
        assert [each["command"] for each in fake.commands["de"]] == ["help"]
        methods = {method for method, _ in fake.requests}
        assert {"sendChatAction", "answerCallbackQuery", "getFile", "getUpdates"} <= methods


async def test_a_bot_of_another_library_takes_posted_updates(fake: FakeTelegram) -> None:
    with aiogram(fake, "webhook"):
        await fake.until(lambda: fake.webhook["url"], timeout_seconds=PROCESS_SECONDS)
        fake.write("hello", sender=ANN)
        headers = {"X-Telegram-Bot-Api-Secret-Token": fake.webhook["secret_token"]}
        async with httpx.AsyncClient(timeout=PROCESS_SECONDS) as telegram:
            taken = await telegram.post(fake.webhook["url"], json=fake.updates[0], headers=headers)
        assert taken.status_code == 200
        await fake.until(lambda: fake.texts(7) == ["echo: hello"])
