"""The fake of Discord as the suite for channels sees a platform."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio

from antiphon.channels.discord.kind import DISCORD
from antiphon.testing.channels import LOOK_SECONDS, Mishap
from antiphon.testing.faults import Fault
from antiphon.testing.serving import serve_fake
from tests.channels.discord.fake_discord import ANN, BEN, BOT, FAMILY, OLGA, FakeDiscord
from tests.channels.discord.fake_gateway import Json

PEOPLE: Final = {"olga": OLGA, "ann": ANN, "ben": BEN}
FAULTS: Final = {Mishap.LOST: Fault.DROP, Mishap.UNANSWERED: Fault.ACT_AND_DROP, Mishap.HANGING: Fault.HANG}


def settings_of(fake: FakeDiscord, **more: Any) -> Json:
    """The section `channels.discord`."""
    return {"token": fake.token, "api_base": fake.base_url, **more}


class DiscordPlatform:
    """Implements `Platform`. Threads are those of a channel.

    Discord tells a bot of no chat that began while it was away: people begin one when they see that the bot is there.
    """

    kind = DISCORD

    def __init__(self, fake: FakeDiscord) -> None:
        self._fake = fake
        self._threads: dict[str, str] = {}
        self._begun: set[str] = set()
        self._written, self._waiting = anyio.create_memory_object_stream[tuple[str, str, str]](1000)

    def section(self, gateway_url: str) -> Json:
        groups: Json = {FAMILY: {}}
        return settings_of(self._fake, access="public", groups=groups, queue_mode="enqueue", stream_interval_ms=500)

    def id_of(self, person: str) -> str:
        return PEOPLE[person]["id"]

    def _channel(self, person: str, thread: str | None) -> str:
        if thread is None:
            return self._fake.dm_of(self.id_of(person))
        if thread not in self._threads:
            self._threads[thread] = self._fake.add_thread(f"thread {thread}")
        return self._threads[thread]

    async def write(self, person: str, text: str, thread: str | None = None) -> None:
        said = text if thread is None else f"<@{BOT}> {text}"
        await self._written.send((person, said, self._channel(person, thread)))

    async def send(self) -> None:
        """Sends what is written."""
        async for person, said, channel in self._waiting:
            while channel not in self._begun and not self._fake.is_connected():
                await anyio.sleep(LOOK_SECONDS)
            self._begun.add(channel)
            self._fake.write(said, sender=PEOPLE[person], channel=channel)

    async def shown(self, person: str, thread: str | None = None) -> Sequence[str]:
        return self._fake.texts(self._channel(person, thread))

    async def received(self, person: str) -> Sequence[tuple[str, bytes]]:
        return [*self._fake.sent_files[self._channel(person, None)].values()]

    async def glimpsed(self, person: str) -> Sequence[str]:
        return [*self._fake.glimpsed[self._channel(person, None)]]

    async def reactions(self, person: str) -> Sequence[str]:
        channel = self._channel(person, None)
        return [each for (where, _), found in self._fake.reactions.items() if where == channel for each in found]

    async def remove_bot(self, person: str) -> None:
        self._fake.blocked.add(self.id_of(person))

    async def befall(self, mishap: Mishap) -> None:
        self._fake.will("create", FAULTS[mishap])

    async def press(self, person: str, label: str) -> bool:
        channel = self._channel(person, None)
        return self._fake.press(label, sender=PEOPLE[person], channel=channel, times=2)  # as impatient people do


@asynccontextmanager
async def discord_platform() -> AsyncGenerator[DiscordPlatform]:
    async with serve_fake(FakeDiscord()) as fake, anyio.create_task_group() as tasks:
        platform = DiscordPlatform(fake)
        tasks.start_soon(platform.send)
        yield platform
        tasks.cancel_scope.cancel()
