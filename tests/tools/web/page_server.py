"""A web server that answers with the bytes that a test gives it, and a world in which its address is a public one."""

import errno
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address

import anyio
from anyio.abc import SocketAttribute, SocketStream, TaskStatus
from anyio.streams.stapled import MultiListener

from antiphon.domain.page_address import IpAddress
from antiphon.policy.web_addresses import WebRules
from antiphon.tools.web.network import Network

PUBLIC_STAND_IN = "127.0.0.2"
"""The address that tests take for a public one."""
OTHER_STAND_IN = "127.0.0.3"
OWN = "127.0.0.1"
Answer = bytes | Callable[[SocketStream], Awaitable[None]]


def answer(body: bytes, *headers: str, status: str = "200 OK", kind: str = "text/html; charset=utf-8") -> bytes:
    """An honest answer."""
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *headers,
    ]
    return "\r\n".join(lines).encode("utf-8") + b"\r\n\r\n" + body


def leads_to(location: str, status: str = "302 Found") -> bytes:
    return answer(b"", f"Location: {location}", status=status)


class PageServer:
    """Listens at both stand-ins, and at this machine's own address, where nobody may come."""

    def __init__(self) -> None:
        self.pages: dict[str, Answer] = {}
        """By path, without the query."""
        self.asked: list[bytes] = []
        """The heads of all requests."""
        self.strays: list[str] = []
        """The addresses at which connections came that no page may make."""
        self.port = 0

    @property
    def asked_for(self) -> list[str]:
        return [head.split(b" ")[1].decode() for head in self.asked]

    async def serve(self, *, task_status: TaskStatus[None]) -> None:
        async with anyio.create_task_group() as tasks:
            for host, listener in (await _listeners()).items():
                self.port = listener.extra(SocketAttribute.local_port)
                tasks.start_soon(listener.serve, self._answer if host != OWN else self._note)
            task_status.started()

    async def _note(self, stream: SocketStream) -> None:
        self.strays.append(OWN)
        await stream.aclose()

    async def _answer(self, stream: SocketStream) -> None:
        with suppress(anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
            async with stream:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += await stream.receive()
                self.asked.append(head)
                found = self.pages.get(head.split(b" ")[1].decode().partition("?")[0])
                if found is None:
                    found = answer(b"no such page", status="404 Not Found")
                if isinstance(found, bytes):
                    await stream.send(found)
                else:
                    await found(stream)


class Names:
    """A system of names that may answer each question otherwise; every name of none leads to the server."""

    def __init__(self, known: Mapping[str, Sequence[Sequence[str]]] | None = None) -> None:
        self._known = {name: list(answers) for name, answers in (known or {}).items()}
        self.asked: list[str] = []

    async def look_up(self, host: str) -> list[IpAddress]:
        self.asked.append(host)
        answers = self._known.get(host)
        if answers is None:
            return [ip_address(PUBLIC_STAND_IN)]
        return [ip_address(each) for each in (answers.pop(0) if len(answers) > 1 else answers[0])]

    @property
    def network(self) -> Network:
        return Network(look_up=self.look_up, admits=_admits, is_this_machine=lambda _: False)


def _admits(rules: WebRules, host: str, address: IpAddress) -> bool:
    return str(address) in (PUBLIC_STAND_IN, OTHER_STAND_IN) or rules.admits(host, address)


async def _listeners() -> dict[str, MultiListener[SocketStream]]:
    """One at each address, all at one port: another is tried if somebody has that port at one of them."""
    while True:
        found: dict[str, MultiListener[SocketStream]] = {}
        port = 0
        try:
            for host in (PUBLIC_STAND_IN, OTHER_STAND_IN, OWN):
                found[host] = await anyio.create_tcp_listener(local_host=host, local_port=port)
                port = found[host].extra(SocketAttribute.local_port)
        except OSError as error:
            for listener in found.values():
                await listener.aclose()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return found


@asynccontextmanager
async def page_server() -> AsyncGenerator[PageServer]:
    server = PageServer()
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        try:
            yield server
        finally:
            tasks.cancel_scope.cancel()
