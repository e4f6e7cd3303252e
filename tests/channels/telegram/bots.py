"""A running home with a bot, whose Telegram is the fake."""

import base64
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import anyio

from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.testing.telegram import FakeTelegram, Json, group, person
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock, config
from tests.waiting import SECONDS

OLGA = person(1, "Olga")
"""The owner."""
ANN = person(7, "Ann")
BEN = person(8, "Ben")
FAMILY = group(-100, "Family", is_forum=True)
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A picture."""
CODE = re.compile(r"\b[A-HJ-NP-Z2-9]{4}-?[A-HJ-NP-Z2-9]{4}\b")


def settings_of(fake: FakeTelegram, **more: Any) -> Json:
    """The section `channels.telegram`; texts wait for no forward unless it says so."""
    return {"token": fake.token, "api_base": fake.base_url.removesuffix("/bot"), "text_wait_ms": 0, **more}


@dataclass(frozen=True, slots=True)
class Bot:
    app: App
    fake: FakeTelegram

    async def link_owner(self) -> None:
        """The owner opens the link of the first start."""
        code = await self.app.services.links.make_code(OWNER)
        self.fake.write(f"/link {code.code} yes", sender=OLGA)
        await self.fake.until(lambda: self.fake.texts(1))

    async def says(self, text: str, *, sender: Json = OLGA, chat: Json | None = None, **more: Any) -> None:
        """Writes it, and returns once the agent's echo is seen there."""
        self.fake.write(text, sender=sender, chat=chat, **more)
        place, thread = (chat or sender)["id"], more.get("message_thread_id")
        await self.fake.until(lambda: any(text in seen for seen in self.fake.texts(place, thread)))

    async def settles(self) -> None:
        """Returns once every update is taken in, no run is under way, and all texts are sent."""
        await self.fake.until(lambda: not self.fake.updates)
        await until(lambda: self.is_idle())
        await self.app.deliverer.wait_idle()

    async def is_idle(self) -> bool:
        found = await self.app.database.read(_count_open)
        return found == 0


async def _count_open(query: Any) -> int:
    row = await query.fetch_one(
        "SELECT (SELECT count(*) FROM runs WHERE status IN ('queued', 'running')) + "
        "(SELECT count(*) FROM deliveries WHERE status IN ('queued', 'claimed')) + "
        "(SELECT count(*) FROM held_messages)"
    )
    return row[0]


async def pass_time(bot: Bot, clock: ManualClock) -> None:
    """Deliveries that failed are due again at once, and changes of a reply are shown at once."""
    while True:
        clock.pass_time(timedelta(seconds=5))
        bot.app.deliverer.wake()
        await anyio.sleep(0.02)


async def until(is_so: Callable[[], Any]) -> None:
    """Asks again and again until it is so."""
    with anyio.fail_after(SECONDS):
        while not await is_so():
            await anyio.sleep(0.02)


@asynccontextmanager
async def open_bot(
    open_home: OpenHome, fake: FakeTelegram, parts: Parts | None = None, **more: Any
) -> AsyncGenerator[Bot]:
    """`more` are settings of the bot; those with `__` are others."""
    own = {name: value for name, value in more.items() if "__" not in name}
    others = {name: value for name, value in more.items() if "__" in name}
    async with open_home(config(channels__telegram=settings_of(fake, **own), **others), parts) as app:
        yield Bot(app, fake)
