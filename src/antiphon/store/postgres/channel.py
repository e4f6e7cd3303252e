"""Short texts between the processes of one PostgreSQL database: NOTIFY and LISTEN."""

from collections.abc import AsyncGenerator

import psycopg

from antiphon.domain.errors import Unavailable
from antiphon.store.postgres.link import connect

CHANNEL = "antiphon"
PING_SECONDS = 5.0
"""Between checks whether a silent connection still works."""


class PostgresChannel:
    """Implements `feed.postgres.Channel`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._sender: psycopg.AsyncConnection[tuple[object, ...]] | None = None

    async def send(self, text: str) -> None:
        """Sends at most 7,900 bytes. Raises `Unavailable`; the text may then be lost."""
        try:
            if self._sender is None or self._sender.closed:
                self._sender = await connect(self._url)
            await self._sender.execute("SELECT pg_notify(%s, %s)", (CHANNEL, text))
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
        sender, self._sender = self._sender, None
        if sender is not None:
            await sender.close()
