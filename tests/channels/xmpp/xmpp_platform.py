"""Prosody as the suite for channels sees a platform; people have a program that knows corrections."""
# pyright: basic

from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final

import anyio
from slixmpp import JID, ClientXMPP

from antiphon.testing.channels import Json, Mishap
from antiphon_xmpp import XMPP
from tests.channels.xmpp.prosody import PASSWORD, Network, Prosody, network_before
from tests.waiting import PROCESS_SECONDS

NUMBERS: Final = count(1)


class Person:
    """Somebody with a program for XMPP."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self._port = port
        self.seen: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """Texts by who sent them, and by their id."""
        self.glimpsed: list[str] = []
        self.client = ClientXMPP(f"{name}@localhost", PASSWORD)
        self.client.enable_plaintext = True
        self.client.enable_starttls = self.client.enable_direct_tls = False
        self.client.plugin["feature_mechanisms"].unencrypted_scram = True
        for plugin in ("xep_0045", "xep_0191", "xep_0308", "xep_0424"):
            self.client.register_plugin(plugin)
        self.client.add_event_handler("message", self._see)

    async def come(self) -> None:
        self.client.connect("127.0.0.1", self._port)
        await self.client.wait_until("session_start", PROCESS_SECONDS)
        self.client.send_presence()

    def _see(self, message: Any) -> None:
        texts, id = self.seen[message["from"].bare], message["replace"]["id"] or message["id"]
        if retracted := message["retract"]["id"]:
            texts.pop(retracted, None)
        elif message["body"] and message["from"].bare != self.client.boundjid.bare:
            texts[id] = message["body"]
            self.glimpsed.append(message["body"])

    def say(self, to: str, text: str, *, is_room: bool = False) -> None:
        self.client.send_message(JID(to), text, mtype="groupchat" if is_room else "chat")

    async def join(self, room: str) -> None:
        await self.client.plugin["xep_0045"].join_muc_wait(JID(room), self.name, maxstanzas=0, timeout=PROCESS_SECONDS)

    async def leave(self) -> None:
        await self.client.disconnect(wait=1)


class XmppPlatform:
    """Implements `Platform`. Each has an account of its own on the server, so that one server is good for all."""

    kind = XMPP

    def __init__(self, prosody: Prosody, network: Network) -> None:
        self._prosody = prosody
        self.network = network
        self._number = next(NUMBERS)
        self._people: dict[str, Person] = {}
        self.account = f"bot{self._number}@localhost"
        prosody.add(f"bot{self._number}")

    def section(self, gateway_url: str, **more: Any) -> Json:
        way = {"host": "127.0.0.1", "port": self.network.port, "plain": True}
        return {"jid": self.account, "password": PASSWORD, "access": "public", "queue_mode": "enqueue", **way, **more}

    def id_of(self, person: str) -> str:
        return f"{person}{self._number}@localhost"

    async def person(self, name: str) -> Person:
        if name not in self._people:
            self._prosody.add(f"{name}{self._number}")
            self._people[name] = person = Person(f"{name}{self._number}", self._prosody.port)
            await person.come()
        return self._people[name]

    async def write(self, person: str, text: str, thread: str | None = None) -> None:
        (await self.person(person)).say(self.account, text)

    async def shown(self, person: str, thread: str | None = None) -> Sequence[str]:
        return [*(await self.person(person)).seen[self.account].values()]

    async def received(self, person: str) -> Sequence[tuple[str, bytes]]:
        return []

    async def glimpsed(self, person: str) -> Sequence[str]:
        return [each.strip() for each in (await self.person(person)).glimpsed]

    async def remove_bot(self, person: str) -> None:
        await (await self.person(person)).client.plugin["xep_0191"].block({JID(self.account)})

    async def befall(self, mishap: Mishap) -> None:
        self.network.befall(mishap)

    async def reactions(self, person: str) -> Sequence[str]:
        return []

    async def press(self, person: str, label: str) -> bool:
        return False

    async def aclose(self) -> None:
        for person in self._people.values():
            await person.leave()
        self._people.clear()


@asynccontextmanager
async def xmpp_platform(prosody: Prosody) -> AsyncGenerator[XmppPlatform]:
    async with network_before(prosody) as network:
        platform = XmppPlatform(prosody, network)
        try:
            yield platform
        finally:
            with anyio.CancelScope(shield=True):
                await platform.aclose()
