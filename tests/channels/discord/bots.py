"""A running home with a bot, whose Discord is the fake."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from tests.channels.discord.discord_platform import settings_of
from tests.channels.discord.fake_discord import ANN, OLGA, FakeDiscord
from tests.channels.discord.fake_gateway import Json
from tests.channels.telegram.bots import until
from tests.conftest import OpenHome
from tests.engine.stage import config, read_log, texts


def key_of(channel: str, thread: str | None = None) -> str:
    """The session of a channel, or of a thread in it."""
    key = f"agent:main:discord:channel:{channel}"
    return key if thread is None else f"{key}:thread:{thread}"


@dataclass(frozen=True, slots=True)
class Bot:
    app: App
    fake: FakeDiscord

    async def link_owner(self) -> None:
        code = await self.app.services.links.make_code(OWNER)
        self.fake.write(f"/link {code.code} yes", sender=OLGA)
        await self.fake.until(lambda: self.fake.texts(self.fake.dm_of(OLGA["id"])))

    async def says(self, text: str, *, sender: Json = ANN, channel: str | None = None, **more: Any) -> None:
        """Writes it, and returns once the agent's echo is seen there."""
        where = channel or self.fake.dm_of(sender["id"])
        self.fake.write(text, sender=sender, channel=where, **more)
        await self.sees(text, where)

    async def sees(self, text: str, channel: str) -> None:
        await self.fake.until(lambda: any(text in seen for seen in self.fake.texts(channel)))

    async def settles(self) -> None:
        """Returns once no run is under way, and all texts are sent."""
        await until(self._is_idle)
        await self.app.deliverer.wait_idle()

    async def _is_idle(self) -> bool:
        return await self.app.database.read(_count_open) == 0

    async def heard(self, key: str) -> list[str]:
        """The texts of people in the session, in order."""
        return texts([event for event in await read_log(self.app, key) if event.type == "user_message"])

    async def has_trouble(self, trouble: str | None) -> None:
        """Returns once that is noted of the account."""

        async def is_so() -> bool:
            return [row.trouble for row in await self.app.inside.accounts.list()] == [trouble]

        await until(is_so)


async def _count_open(query: Any) -> int:
    row = await query.fetch_one(
        "SELECT (SELECT count(*) FROM runs WHERE status IN ('queued', 'running')) + "
        "(SELECT count(*) FROM deliveries WHERE status IN ('queued', 'claimed')) + "
        "(SELECT count(*) FROM held_messages)"
    )
    return row[0]


@asynccontextmanager
async def open_bot(
    open_home: OpenHome, fake: FakeDiscord, parts: Parts | None = None, *, waits: bool = True, **more: Any
) -> AsyncGenerator[Bot]:
    """`more` are settings of the bot; those with `__` are others. Waits until it is connected."""
    own = {name: value for name, value in more.items() if "__" not in name}
    others = {name: value for name, value in more.items() if "__" in name}
    others.setdefault("access__messages_per_minute", 100_000)
    async with open_home(config(channels__discord=settings_of(fake, **own), **others), parts) as app:
        if waits:
            await fake.until(fake.is_connected)
        yield Bot(app, fake)
