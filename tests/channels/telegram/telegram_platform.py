"""The fake of Telegram as the suite for channels sees a platform."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from antiphon.channels.telegram.kind import TELEGRAM
from antiphon.testing.channels import Mishap
from antiphon.testing.faults import Fault
from antiphon.testing.serving import serve_fake
from antiphon.testing.telegram import FakeTelegram, Json
from tests.channels.telegram.bots import ANN, BEN, FAMILY, OLGA, settings_of

PEOPLE: Final = {"olga": OLGA, "ann": ANN, "ben": BEN}
FAULTS: Final = {Mishap.LOST: Fault.DROP, Mishap.UNANSWERED: Fault.ACT_AND_DROP, Mishap.HANGING: Fault.HANG}


class TelegramPlatform:
    """Implements `Platform`. Threads are topics of a group."""

    kind = TELEGRAM

    def __init__(self, fake: FakeTelegram) -> None:
        self._fake = fake

    def section(self, gateway_url: str) -> Json:
        return settings_of(
            self._fake, access="public", groups={"-100": {}}, queue_mode="enqueue", stream_interval_ms=500
        )

    def id_of(self, person: str) -> str:
        return str(PEOPLE[person]["id"])

    async def write(self, person: str, text: str, thread: str | None = None) -> None:
        if thread is None:
            self._fake.write(text, sender=PEOPLE[person])
        else:
            topic = {"message_thread_id": int(thread), "is_topic_message": True}
            self._fake.write(f"@test_bot {text}", sender=PEOPLE[person], chat=FAMILY, **topic)

    async def shown(self, person: str, thread: str | None = None) -> Sequence[str]:
        if thread is None:
            return self._fake.texts(PEOPLE[person]["id"])
        return self._fake.texts(FAMILY["id"], int(thread))

    async def received(self, person: str) -> Sequence[tuple[str, bytes]]:
        return self._fake.documents.get(PEOPLE[person]["id"], [])

    async def glimpsed(self, person: str) -> Sequence[str]:
        return [sent["text"].strip() for method, sent in self._fake.requests if method == "sendMessageDraft"]

    async def remove_bot(self, person: str) -> None:
        self._fake.blocked.add(PEOPLE[person]["id"])

    async def befall(self, mishap: Mishap) -> None:
        self._fake.will("sendMessage", FAULTS[mishap])

    async def reactions(self, person: str) -> Sequence[str]:
        there, found = PEOPLE[person]["id"], self._fake.reactions.items()
        return [emoji for (chat, _), emojis in found if chat == there for emoji in emojis]

    async def press(self, person: str, label: str) -> bool:
        chat = PEOPLE[person]["id"]
        for message in reversed(self._fake.messages(chat)):
            for button in [each for row in message.get("reply_markup", {}).get("inline_keyboard", []) for each in row]:
                if label in button["text"]:
                    data, place = button["callback_data"], {"chat": chat, "message_id": message["message_id"]}
                    for _ in range(2):  # as impatient people do
                        self._fake.press(data, sender=PEOPLE[person], **place)
                    return True
        return False


@asynccontextmanager
async def telegram_platform() -> AsyncGenerator[TelegramPlatform]:
    async with serve_fake(FakeTelegram()) as fake:
        yield TelegramPlatform(fake)
