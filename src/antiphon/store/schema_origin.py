"""Checks whether this program's migrations made a database, or others with the same numbers."""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources

from antiphon.store.migrations import SQLITE_WORDS, Migration, StoreUnusable, migrations, newest_schema, statements

Columns = Mapping[str, frozenset[str]]
"""Column names by table."""


def hash_of(text: str) -> str:
    """The hash of a migration's text, as it is in the file."""
    return hashlib.sha256(text.encode()).hexdigest()


def check_origin(
    place: str, newest: int, known: Iterable[Migration], *, hashes: Mapping[int, str], columns: Columns
) -> None:
    """Raises `StoreUnusable` (`store_other`) if migrations other than ours made the database.

    `newest` is the last applied migration. A database from before the hashes is judged by the columns of its tables,
    which are not looked at otherwise.
    """
    if hashes:
        _check_hashes(place, hashes, known)
    else:
        _check_columns(place, newest, columns)


def columns_by_table(rows: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """From pairs of a table's and a column's name."""
    found: dict[str, set[str]] = {}
    for table, column in rows:
        found.setdefault(table, set()).add(column)
    return {table: frozenset(columns) for table, columns in found.items()}


def _check_hashes(place: str, hashes: Mapping[int, str], known: Iterable[Migration]) -> None:
    for number, name, text in known:
        if number in hashes and hashes[number] != hash_of(text):
            raise _other(place, f"its migration {number:04d} ({name}) is not this program's")


def _check_columns(place: str, newest: int, found: Columns) -> None:
    if why := missing_column(newest, found):
        raise _other(place, why)
    for table, columns in expected_columns(newest).items():
        if more := sorted(found[table] - columns):
            raise _other(place, f"the table {table!r} has a column {more[0]!r} that this program does not know")


def check_columns(place: str, newest: int, found: Columns) -> None:
    """Raises `StoreUnusable` (`store_corrupt`) if a table or column of our own migrations is gone."""
    if why := missing_column(newest, found):
        raise StoreUnusable(
            f"Database is damaged: {place}: {why}; another program changed it. Restore a backup.", code="store_corrupt"
        )


def missing_column(newest: int, found: Columns) -> str | None:
    """The first table or column that a database with that newest migration lacks; None if it has all."""
    for table, columns in expected_columns(newest).items():
        if table not in found:
            return f"the table {table!r} is missing"
        if missing := sorted(columns - found[table]):
            return f"the table {table!r} has no column {missing[0]!r}"
    return None


@cache
def expected_columns(newest: int) -> Columns:
    """The tables that both databases have after that migration.

    Those after the newest one are stored beside the migrations, because carrying out all of them takes a start 60 ms.
    """
    if newest != newest_schema():
        return columns_made(newest)
    stored = resources.files("antiphon.store").joinpath("schema", "newest.json").read_text("utf-8")
    return {table: frozenset(names) for table, names in json.loads(stored).items()}


def columns_made(newest: int) -> Columns:
    """The tables that the migrations up to that one make in an empty database."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for number, _, text in migrations(dialect=None):
            if number <= newest:
                for statement in statements(text, SQLITE_WORDS):
                    connection.execute(statement)
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            table: frozenset(name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall())
            for (table,) in tables
        }
    finally:
        connection.close()


def _other(place: str, why: str) -> StoreUnusable:
    return StoreUnusable(
        f"Database is of another build of Antiphon: {place}: {why}, although the schema numbers match. It was not "
        "changed. Start the build that made it, or restore a backup of a released version.",
        code="store_other",
    )
