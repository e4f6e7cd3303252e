"""A connection that opens on demand and reopens after it broke."""

import os
import socket
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import Int8Dumper

from antiphon.server_url import PasswordFailed, password_of
from antiphon.store.database import Row
from antiphon.store.postgres.errors import NoPassword
from antiphon.store.postgres.pipeline import Pipeline

IDLE_SECONDS = 5
"""How long a process that was suspended within a transaction keeps its locks."""
LOCK_SECONDS = 2
"""How long a statement waits for a lock before it is tried again: also the statements of a suspended process, so that
none of them gets the lock when the one before has lost it. A statement waits twice, for its turn and for the row; both
together are shorter than `IDLE_SECONDS`."""
STATEMENT_SECONDS = 300
"""After this time the server ends a statement of a process that may be gone."""


class Link:
    """One connection, opened on demand and reopened after it broke."""

    def __init__(self, url: str, *, is_standby: bool = False) -> None:
        self._url = url
        self._is_standby = is_standby
        self._connection: AsyncConnection[Row] | None = None
        self._pipeline: Pipeline | None = None
        self.life = ""
        """The server's life when the connection was opened; changes with a crash, which ends every connection."""

    async def open(self) -> Pipeline:
        if self._pipeline is not None and self._pipeline.is_usable:
            return self._pipeline
        await self.close()
        self._connection = await connect(self._url)
        await self._connection.execute(
            f"SET lock_timeout = '{LOCK_SECONDS}s'; SET statement_timeout = '{STATEMENT_SECONDS}s'".encode()
        )
        try:
            self.life = "" if self._is_standby else await _server_life(self._connection)
        except psycopg.errors.FeatureNotSupported as error:  # a standby, which lacks unlogged tables
            raise psycopg.errors.ReadOnlySqlTransaction(str(error)) from error
        self._pipeline = Pipeline(self._connection)
        return self._pipeline

    async def reset(self) -> None:
        """Ends any open transaction; gives the connection up if it cannot."""
        if self._pipeline is None:
            return
        try:
            if self._pipeline.is_usable and not self._pipeline.is_idle:
                await self._pipeline.fetch(b"ROLLBACK")
        except psycopg.Error:
            pass
        if not self._pipeline.is_usable:
            await self.close()

    async def close(self) -> None:
        if self._pipeline is not None:
            self._pipeline.leave()
        connection, self._connection, self._pipeline = self._connection, None, None
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


def application_name(pid: int, host: str) -> str:
    """Tells on the server which process a connection belongs to."""
    return f"antiphon {pid} on {host}"[:63]


_VARIABLES = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE"}
"""What a command for passwords is told of the server."""


class PostgresConnection(AsyncConnection[Row]):
    """A connection in autocommit mode, which asks for the password where a command prints it."""

    @classmethod
    async def connect(cls, conninfo: str = "", **options: Any) -> Self:
        options |= {
            "autocommit": True,
            "connect_timeout": 5,
            "application_name": application_name(os.getpid(), socket.gethostname()),
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 25_000,
        }
        command = password_of(conninfo)
        if command is None:
            return await super().connect(conninfo, **options)
        parts = conninfo_to_dict(conninfo)
        place = {name: str(parts[part]) for part, name in _VARIABLES.items() if parts.get(part)}
        refused: str | None = None
        while True:
            try:
                password = await command.password(place, refused=refused)
            except PasswordFailed as error:
                raise NoPassword(str(error)) from None
            try:
                return await super().connect(conninfo, **options, password=password)
            except psycopg.OperationalError as error:
                if refused is not None or "authentication failed" not in str(error):
                    raise
                refused = password  # it was kept, and is no longer valid


async def connect(url: str) -> AsyncConnection[Row]:
    """A connection in autocommit mode: our code begins and ends each transaction."""
    connection = await PostgresConnection.connect(url)
    # One type for all integers; otherwise each size makes another prepared statement.
    connection.adapters.register_dumper(int, Int8Dumper)
    await connection.execute(f"SET idle_in_transaction_session_timeout = {IDLE_SECONDS * 1000}".encode())
    return connection
