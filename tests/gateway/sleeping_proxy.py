"""A network that falls asleep: nothing passes, and nobody is told; as when a laptop is closed."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio
from anyio.abc import SocketAttribute, SocketStream


@dataclass(slots=True)
class SleepingProxy:
    """Passes bytes to and from the port. A connection that saw it asleep is dead for ever.

    After waking, a dead connection is closed when its client writes, unless the client waits for an answer to what
    it wrote during the sleep: that never comes.
    """

    target_port: int
    port: int = 0
    is_asleep: bool = False
    sleeps: int = 0

    def sleep(self) -> None:
        self.is_asleep = True
        self.sleeps += 1

    def wake(self) -> None:
        self.is_asleep = False

    async def serve(self, client: SocketStream) -> None:
        born = None if self.is_asleep else self.sleeps
        server = await anyio.connect_tcp("127.0.0.1", self.target_port)
        async with client, server, anyio.create_task_group() as tasks:
            tasks.start_soon(self._answer, client, server, born, tasks.cancel_scope)
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self._ask(client, server, born)
            tasks.cancel_scope.cancel()

    async def _ask(self, client: SocketStream, server: SocketStream, born: int | None) -> None:
        is_lost = False
        async for data in client:
            if born == self.sleeps:
                await server.send(data)
            elif self.is_asleep or is_lost:
                is_lost = True
            else:
                return

    async def _answer(
        self, client: SocketStream, server: SocketStream, born: int | None, connection: anyio.CancelScope
    ) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for data in server:
                if born == self.sleeps:
                    await client.send(data)
        if born == self.sleeps:  # that the gateway closed it is not heard through a dead connection
            connection.cancel()


@asynccontextmanager
async def sleeping_proxy(target_port: int) -> AsyncGenerator[SleepingProxy]:
    proxy = SleepingProxy(target_port)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        proxy.port = listener.extra(SocketAttribute.local_port)
        tasks.start_soon(listener.serve, proxy.serve)
        yield proxy
        tasks.cancel_scope.cancel()
