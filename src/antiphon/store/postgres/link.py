"""A connection that opens on demand and reopens after it broke."""

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.types.numeric import Int8Dumper

from antiphon.store.database import Row

IDLE_SECONDS = 5
"""How long a process that was suspended within a transaction keeps its locks."""


class Link:
    """One connection, opened on demand and reopened after it broke."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: AsyncConnection[Row] | None = None
        self._cursor: AsyncRawCursor[Row] | None = None
        self.life = ""
        """The server's life when the connection was opened; changes with a crash, which ends every connection."""

    async def open(self) -> tuple[AsyncConnection[Row], AsyncRawCursor[Row]]:
        if self._connection is None or self._connection.closed:
            self._connection = await connect(self._url)
            self._cursor = AsyncRawCursor(self._connection)
            self.life = await _server_life(self._connection)
        assert self._cursor is not None
        return self._connection, self._cursor

    async def reset(self) -> None:
        """Ends any open transaction; gives the connection up if it cannot."""
        connection = self._connection
        if connection is None or connection.closed:
            return
        try:
            if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                await connection.execute("ROLLBACK")
        except psycopg.Error:
            await self.close()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


async def _server_life(connection: AsyncConnection[Row]) -> str:
    """Changes when the server crashes: the content of a table that crash recovery empties."""
    statement = "SELECT token FROM server_life"
    row = await (await connection.execute(statement)).fetchone()
    if row is None:
        await connection.execute("INSERT INTO server_life VALUES (1, gen_random_uuid()) ON CONFLICT DO NOTHING")
        row = await (await connection.execute(statement)).fetchone()
        assert row is not None
    return row[0]


async def connect(url: str) -> AsyncConnection[Row]:
    """A connection in autocommit mode: our code begins and ends each transaction."""
    connection = await AsyncConnection.connect(
        url,
        autocommit=True,
        connect_timeout=5,
        application_name="antiphon",
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
    )
    # Planning takes longer than most statements do.
    connection.prepare_threshold = 1
    connection.prepared_max = 1024
    # One type for all integers; otherwise each size makes another prepared statement.
    connection.adapters.register_dumper(int, Int8Dumper)
    await connection.execute(f"SET idle_in_transaction_session_timeout = {IDLE_SECONDS * 1000}".encode())
    return connection
