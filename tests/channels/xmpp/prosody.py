"""Debian's server for XMPP, and the network in front of it."""

import shutil
import socket
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import SocketStream

from antiphon.testing.channels import Mishap
from antiphon.testing.ports import free_port
from tests.processes import ending
from tests.waiting import PROCESS_SECONDS, until

PROGRAM: Final = shutil.which("prosody")
MISSING: Final = "Prosody is not installed: apt-get install prosody"
PASSWORD: Final = "correct horse battery"
ROOM: Final = "family@rooms.localhost"
SETTINGS: Final = """
run_as_root = true
pidfile = "{home}/prosody.pid"
data_path = "{home}/data"
log = {{ info = "{home}/prosody.log" }}
interfaces = {{ "127.0.0.1" }}
c2s_ports = {{ {port} }}
modules_enabled = {{ "roster", "saslauth", "disco", "ping", "blocklist", "mam" }}
modules_disabled = {{ "s2s" }}
authentication = "internal_plain"
c2s_require_encryption = false
default_archive_policy = true
VirtualHost "localhost"
Component "rooms.localhost" "muc"
  modules_enabled = {{ "muc_mam" }}
  muc_room_default_public_jids = true
  muc_room_locking = false
"""


class Prosody:
    """A server with the domain `localhost`."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.port = free_port()
        (home / "prosody.cfg.lua").write_text(SETTINGS.format(home=home, port=self.port), "utf-8")
        self._accounts = home / "data" / "localhost" / "accounts"
        self._accounts.mkdir(parents=True)

    def add(self, name: str) -> None:
        (self._accounts / f"{name}.dat").write_text(f'return {{ ["password"] = "{PASSWORD}" }}', "utf-8")

    @contextmanager
    def running(self) -> Generator[None]:
        assert PROGRAM is not None
        command = [PROGRAM, "-F", "--config", str(self._home / "prosody.cfg.lua")]
        with ending(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)):
            until(self._is_up, seconds=PROCESS_SECONDS)
            yield

    def _is_up(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class Network:
    """The way from the agents' account to the server, on which mishaps befall texts."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._mishap: Mishap | None = None
        self._clients: set[SocketStream] = set()
        self._answering = anyio.Lock()
        self.port = 0

    def befall(self, mishap: Mishap) -> None:
        self._mishap = mishap

    async def inject(self, data: bytes) -> None:
        """The account gets it, as if it came from the server."""
        assert self._clients
        for client in self._clients:
            await self.answer(client, data)

    async def answer(self, client: SocketStream, data: bytes) -> None:
        async with self._answering:
            await client.send(data)

    async def carry(self, client: SocketStream) -> None:
        async with client:
            try:
                server = await anyio.connect_tcp("127.0.0.1", self._port)
            except OSError:
                return
            self._clients.add(client)
            async with server, anyio.create_task_group() as tasks:
                passing = _Passing(self, tasks.cancel_scope)
                tasks.start_soon(passing.carry_questions, client, server)
                tasks.start_soon(passing.carry_answers, server, client)
            self._clients.remove(client)

    def mishap_of(self, data: bytes) -> Mishap | None:
        """What befalls the text in it, once."""
        if b"<body" not in data or self._mishap is None:
            return None
        mishap, self._mishap = self._mishap, None
        return mishap


class _Passing:
    """One connection."""

    def __init__(self, network: Network, scope: anyio.CancelScope) -> None:
        self._network = network
        self._scope = scope
        self._mishap: Mishap | None = None

    async def carry_questions(self, client: SocketStream, server: SocketStream) -> None:
        try:
            async for data in client:
                self._mishap = self._mishap or self._network.mishap_of(data)
                if self._mishap is Mishap.LOST:
                    break
                if self._mishap is not Mishap.HANGING:
                    await server.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        self._scope.cancel()

    async def carry_answers(self, server: SocketStream, client: SocketStream) -> None:
        try:
            async for data in server:
                if self._mishap is Mishap.UNANSWERED:
                    break
                if self._mishap is not Mishap.HANGING:
                    await self._network.answer(client, data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        self._scope.cancel()


@asynccontextmanager
async def network_before(prosody: Prosody) -> AsyncGenerator[Network]:
    network = Network(prosody.port)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    network.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, network.carry)
        yield network
        tasks.cancel_scope.cancel()
