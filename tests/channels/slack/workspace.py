"""A running home with an app in a workspace, whose Slack is the fake."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from antiphon.building import App, Parts
from antiphon.domain.message import UserMessage, text_of
from tests.channels.slack.fake_slack import BOT, FakeSlack
from tests.channels.slack.slack_platform import CHANNEL, settings_of
from tests.channels.telegram.bots import until
from tests.conftest import OpenHome
from tests.engine.stage import config, read_log

MENTION = f"<@{BOT}>"


@dataclass(frozen=True, slots=True)
class Workspace:
    app: App
    fake: FakeSlack

    async def says(self, user: str, text: str) -> str:
        """Writes it in the direct chat, and returns once the agent's echo is seen there."""
        ts = self.fake.write(user, text)
        await self.sees(f"D{user}", text)
        return ts

    async def mentions(self, user: str, text: str, thread: str | None = None) -> str:
        """Mentions the bot in the channel, and returns once the echo is seen in the thread."""
        ts = self.fake.write(user, f"{MENTION} {text}", channel=CHANNEL, thread=thread)
        await self.sees(CHANNEL, text, thread or ts)
        return ts

    async def sees(self, channel: str, text: str, thread: str | None = None) -> None:
        await self.fake.until(lambda: any(text in each for each in self.fake.texts(channel, thread)))

    async def until_trouble(self, trouble: str | None) -> None:
        async def is_so() -> bool:
            rows = await self.app.inside.accounts.list()
            return any((row.trouble or "").startswith(trouble) if trouble else row.trouble is None for row in rows)

        await until(is_so)

    async def stored(self, key: str) -> list[str]:
        """What people wrote in the session."""
        log = await read_log(self.app, key)
        return [text_of(each.message.content) for each in log if isinstance(each.message, UserMessage)]


@asynccontextmanager
async def open_workspace(
    open_home: OpenHome, fake: FakeSlack, parts: Parts | None = None, **more: Any
) -> AsyncGenerator[Workspace]:
    """`more` are settings of the channel; those with `__` are others."""
    own = {name: value for name, value in more.items() if "__" not in name}
    others = {name: value for name, value in more.items() if "__" in name}
    section = settings_of(fake, **{"access": "public", "groups": {CHANNEL: {}}, "queue_mode": "enqueue", **own})
    async with open_home(config(channels__slack=section, **others), parts) as app:
        await fake.until(lambda: fake.connections)
        yield Workspace(app, fake)
