"""Matrix as the suite for channels sees a platform."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from antiphon.channels.matrix.kind import MATRIX
from antiphon.testing.channels import Json, Mishap
from tests.channels.matrix.synapse import NUMBERS, SERVER, Network, Synapse, User, network_before


class MatrixPlatform:
    """Implements `Platform`. Each has an account of its own on the server, so that one server is good for all."""

    kind = MATRIX

    def __init__(self, synapse: Synapse, network: Network, bot: User, number: int) -> None:
        self._synapse = synapse
        self.network = network
        self.bot = bot
        self.number = number
        self._people: dict[str, User] = {}
        self._rooms: dict[str, str] = {}
        self._roots: dict[tuple[str, str], str] = {}

    @property
    def url(self) -> str:
        return self._synapse.url

    def section(self, gateway_url: str = "", **more: Any) -> Json:
        way = {"homeserver": self.network.url, "user": self.bot.id, "token": self.bot.token}
        section = {**way, "access": "public", "queue_mode": "enqueue", "stream_interval_ms": 500, **more}
        return {name: value for name, value in section.items() if value is not None}

    def id_of(self, person: str) -> str:
        return f"@{person}{self.number}:{SERVER}"

    async def person(self, name: str) -> User:
        if name not in self._people:
            self._people[name] = await self._synapse.register(f"{name}{self.number}")
        return self._people[name]

    async def room(self, name: str) -> str:
        if name not in self._rooms:
            self._rooms[name] = await (await self.person(name)).make_room(self.bot.id)
        return self._rooms[name]

    async def write(self, person: str, text: str, thread: str | None = None) -> None:
        user, room = await self.person(person), await self.room(person)
        related = {"rel_type": "m.thread", "event_id": await self._root(person, thread)} if thread else None
        await user.say(room, text, **({"m.relates_to": related} if related else {}))

    async def _root(self, person: str, thread: str) -> str:
        """The message that the thread is under: one that is for nobody."""
        if (person, thread) not in self._roots:
            user, room = await self.person(person), await self.room(person)
            content = {"msgtype": "m.notice", "body": f"thread {thread}"}
            self._roots[person, thread] = await user.put(room, "m.room.message", content)
        return self._roots[person, thread]

    async def shown(self, person: str, thread: str | None = None) -> Sequence[str]:
        root = None if thread is None else await self._root(person, thread)
        return await (await self.person(person)).texts(await self.room(person), self.bot.id, root)

    async def received(self, person: str) -> Sequence[tuple[str, bytes]]:
        user, room = await self.person(person), await self.room(person)
        return await user.files(room, self.bot.id)

    async def glimpsed(self, person: str) -> Sequence[str]:
        events = await (await self.person(person)).events(await self.room(person))
        said = [each for each in events if each["type"] == "m.room.message"]
        ours = [each["content"] for each in said if each["sender"] == self.bot.id]
        return [each.get("m.new_content", each).get("body", "").strip() for each in ours]

    async def reactions(self, person: str) -> Sequence[str]:
        events = await (await self.person(person)).events(await self.room(person))
        redacted = {each.get("redacts") or each["content"].get("redacts") for each in events}
        ours = [each for each in events if each["type"] == "m.reaction" and each["sender"] == self.bot.id]
        kept = [each for each in ours if each["event_id"] not in redacted and each["content"]]
        return [each["content"]["m.relates_to"]["key"] for each in kept]

    async def remove_bot(self, person: str) -> None:
        await (await self.person(person)).kick(await self.room(person), self.bot.id)

    async def befall(self, mishap: Mishap) -> None:
        self.network.befall(mishap)

    async def press(self, person: str, label: str) -> bool:
        return False

    async def aclose(self) -> None:
        for user in (self.bot, *self._people.values()):
            await user.aclose()


@asynccontextmanager
async def matrix_platform(synapse: Synapse) -> AsyncGenerator[MatrixPlatform]:
    number = next(NUMBERS)
    async with network_before(synapse) as network:
        platform = MatrixPlatform(synapse, network, await synapse.register(f"bot{number}"), number)
        try:
            yield platform
        finally:
            with anyio.CancelScope(shield=True):
                await platform.aclose()
