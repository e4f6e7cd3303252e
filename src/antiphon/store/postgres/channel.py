"""Short texts between the processes of one PostgreSQL database: NOTIFY and LISTEN."""

import asyncio
from collections.abc import AsyncGenerator

import psycopg

from antiphon.domain.errors import Unavailable
from antiphon.store.postgres.link import Link, connect

CHANNEL = "antiphon"
PING_SECONDS = 5.0
"""Between checks whether a silent connection still works."""


class PostgresChannel:
    """Implements `feed.postgres.Channel`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._sender = Link(url)
        self._turn = asyncio.Lock()

    async def send(self, text: str) -> None:
        """Sends at most 7,900 bytes. Raises `Unavailable`; the text may then be lost."""
        try:
            async with self._turn:
                pipeline = await self._sender.open()
                await pipeline.fetch(b"SELECT pg_notify($1, $2)", (CHANNEL, text))
        except psycopg.Error as error:
            await self.close()
            raise Unavailable("Notification cannot be sent", code="store_unreachable") from error

    async def receive(self) -> AsyncGenerator[str | None]:
        """Yields None once it listens, then every sent text. Raises `Unavailable` when the connection breaks."""
        try:
            connection = await connect(self._url)
            try:
                await connection.execute(f"LISTEN {CHANNEL}")
                yield None
                while True:
                    async for notification in connection.notifies(timeout=PING_SECONDS):
                        yield notification.payload
                    await connection.execute("SELECT 1")
            finally:
                await connection.close()
        except psycopg.Error as error:
            raise Unavailable("Notifications cannot be received", code="store_unreachable") from error

    async def close(self) -> None:
        async with self._turn:
            await self._sender.close()
