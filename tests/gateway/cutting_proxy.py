"""A proxy that cuts connections after any number of bytes."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
from anyio.abc import SocketAttribute, SocketStream


@dataclass(slots=True)
class CuttingProxy:
    """Passes bytes to and from the port; each connection is cut when its allowance of answered bytes is used up."""

    target_port: int
    allowance: Callable[[], int]
    """How many bytes of answers the next connection lets through."""
    port: int = 0
    cuts: int = 0

    async def serve(self, client: SocketStream) -> None:
        server = await anyio.connect_tcp("127.0.0.1", self.target_port)
        async with client, server, anyio.create_task_group() as tasks:
            tasks.start_soon(self._ask, client, server)
            await self._answer(client, server, self.allowance())
            tasks.cancel_scope.cancel()

    async def _ask(self, client: SocketStream, server: SocketStream) -> None:
        try:
            async for data in client:
                await server.send(data)
        except anyio.BrokenResourceError:
            pass

    async def _answer(self, client: SocketStream, server: SocketStream, left: int) -> None:
        try:
            while left > 0:
                data = await server.receive(min(left, 65536))
                left -= len(data)
                await client.send(data)
        except (anyio.BrokenResourceError, anyio.EndOfStream):
            return
        self.cuts += 1


@asynccontextmanager
async def cutting_proxy(target_port: int, allowance: Callable[[], int]) -> AsyncGenerator[CuttingProxy]:
    proxy = CuttingProxy(target_port, allowance)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        proxy.port = listener.extra(SocketAttribute.local_port)
        tasks.start_soon(listener.serve, proxy.serve)
        yield proxy
        tasks.cancel_scope.cancel()
