"""A way to a server that is cut again and again, at any byte, in either direction."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random

import anyio
from anyio.abc import SocketStream

MEAN_BYTES = 500
"""That pass in the direction that is cut."""


class CuttingProxy:
    """Cuts every connection, until there were enough cuts."""

    def __init__(self, port: int, random: Random, most_cuts: int) -> None:
        self._port = port
        self._random = random
        self._most = most_cuts
        self.cuts_of_questions = 0
        """The server may not have got what was asked."""
        self.cuts_of_answers = 0
        """The server has done what was asked, and its answer was lost."""
        self.address = ""

    @property
    def cuts(self) -> int:
        return self.cuts_of_questions + self.cuts_of_answers

    async def carry(self, client: SocketStream) -> None:
        limits: list[int | None] = [None, None]
        if self.cuts < self._most:
            limits[self._random.randrange(2)] = int(self._random.expovariate(1 / MEAN_BYTES))
        async with client:
            try:
                server = await anyio.connect_tcp("127.0.0.1", self._port)
            except OSError:
                return
            async with server, anyio.create_task_group() as tasks:
                tasks.start_soon(self._pass, client, server, limits[0], tasks.cancel_scope)
                tasks.start_soon(self._pass, server, client, limits[1], tasks.cancel_scope)

    async def _pass(
        self, source: SocketStream, sink: SocketStream, limit: int | None, scope: anyio.CancelScope
    ) -> None:
        left, is_answer = limit, limit is not None and sink.extra(anyio.abc.SocketAttribute.remote_port) != self._port
        try:
            async for data in source:
                part = data if left is None else data[:left]
                if part:
                    await sink.send(part)
                if left is not None:
                    left -= len(part)
                    if len(part) < len(data):
                        if is_answer:
                            self.cuts_of_answers += 1
                        else:
                            self.cuts_of_questions += 1
                        break
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        scope.cancel()


@asynccontextmanager
async def cutting(port: int, seed: int, most_cuts: int) -> AsyncGenerator[CuttingProxy]:
    proxy = CuttingProxy(port, Random(seed), most_cuts)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    proxy.address = f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, proxy.carry)
        yield proxy
        tasks.cancel_scope.cancel()
