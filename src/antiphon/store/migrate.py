"""Brings a database to this version's schema: numbered SQL files, forward only."""

import secrets
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.store.log_hashes import cover_events
from antiphon.store.migrations import (
    SQLITE_WORDS,
    Migration,
    StoreUnusable,
    migrations,
    newest_schema,
    statements,
)
from antiphon.store.names import fold_names
from antiphon.store.old_classifications import classify_events
from antiphon.store.old_principals import name_people
from antiphon.store.schema_origin import check_columns, check_origin, columns_by_table, hash_of, missing_column
from antiphon.store.sqlite_errors import unusable
from antiphon.store.step import Step
from antiphon.store.webhook_peers import name_peers

if TYPE_CHECKING:
    from antiphon.store.sqlite import SqliteConnection

APPLICATION_ID = 0x416E7470
"""In the header of our SQLite files, to distinguish them from other programs' databases."""

STEPS: Mapping[str, Step] = {
    "rights": name_peers,
    "names": fold_names,
    "people": name_people,
    "classifications": classify_events,
    "audit": lambda: cover_events(secrets.token_hex(32)),
}
"""Steps that run after the SQL of a migration, by its name."""


def recognise(connection: "SqliteConnection", path: Path) -> list[int]:
    """The numbers of the applied migrations, ascending; writes nothing.

    Raises `StoreUnusable` for a file of another program or a newer version.
    """
    applied = _applied(connection, path)
    known = migrations()
    newest = known[-1].number
    if applied and applied[-1] > newest:
        raise StoreUnusable(
            f"Database is of a newer version: {str(path)!r} has schema {applied[-1]}, this program knows "
            f"{newest}. Install the newer Antiphon, or restore a backup made before the upgrade.",
            code="store_newer",
        )
    if applied:
        hashes = _hashes(connection)
        columns = {} if hashes else _columns(connection)
        check_origin(repr(str(path)), applied[-1], known, hashes=hashes, columns=columns)
    return applied


def migrate(connection: "SqliteConnection", *, path: Path, now_ms: int) -> None:
    """Applies missing migrations, all in one transaction: a failure leaves the schema that was there.

    Raises `StoreUnusable` for a file of another program or a newer version, or a corrupt one.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            applied = recognise(connection, path)
            for migration in migrations():
                if migration.number not in applied:
                    _apply(connection, migration, now_ms)
            _keep_hashes(connection)
        except BaseException:
            if connection.in_transaction:  # some failures have ended it
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        check_columns(repr(str(path)), newest_schema(), _columns(connection))
    except sqlite3.DatabaseError as error:
        raise unusable(path, error) from error


def find_schema_damage(connection: "SqliteConnection") -> str | None:
    """The table or column that the schema lacks although its migration was applied; None if all are there."""
    return missing_column(newest_schema(), _columns(connection))


def _carry_out(connection: "SqliteConnection", step: Step) -> None:
    asking = step()
    asked = next(asking, None)
    while asked is not None:
        rows = connection.execute(asked.text, asked.values).fetchall()
        try:
            asked = asking.send(rows)
        except StopIteration:
            return


def _applied(connection: "SqliteConnection", path: Path) -> list[int]:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
    if "schema_migrations" in tables:
        rows = connection.execute("SELECT version FROM schema_migrations ORDER BY version").fetchall()
        return [int(row[0]) for row in rows]
    if tables:
        raise StoreUnusable(
            f"Database is not Antiphon's: {str(path)!r} contains other tables. Choose another home with --home.",
            code="store_foreign",
        )
    return []


def _hashes(connection: "SqliteConnection") -> dict[int, str]:
    """The hashes in the database; empty for an earlier schema."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_hashes'").fetchall():
        return {}
    return dict(connection.execute("SELECT version, hash FROM schema_hashes").fetchall())


def _columns(connection: "SqliteConnection") -> dict[str, frozenset[str]]:
    rows = connection.execute(
        "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'"
    ).fetchall()
    return columns_by_table(rows)


def _keep_hashes(connection: "SqliteConnection") -> None:
    for number, _, text in migrations():
        connection.execute("INSERT OR IGNORE INTO schema_hashes VALUES (?, ?)", (number, hash_of(text)))


def _apply(connection: "SqliteConnection", migration: Migration, now_ms: int) -> None:
    number, name, text = migration
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}").fetchall()
    connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations "
        "(version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)"
    )
    for statement in statements(text, SQLITE_WORDS):
        connection.execute(statement)
    if step := STEPS.get(name):
        _carry_out(connection, step)
    connection.execute("INSERT INTO schema_migrations VALUES (?, ?, ?)", (number, name, now_ms))
