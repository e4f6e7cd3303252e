"""Brings a database to this version's schema: numbered SQL files, forward only."""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from antiphon.domain.errors import AntiphonError
from antiphon.store.step import Step
from antiphon.store.webhook_peers import name_peers

if TYPE_CHECKING:
    from antiphon.store.sqlite import Connection

APPLICATION_ID = 0x416E7470
"""In the header of our SQLite files, so that another program's database is told from ours."""

SQLITE_WORDS = {"$serial": "INTEGER PRIMARY KEY", "$without_rowid": "WITHOUT ROWID", "$blob": "BLOB"}

STEPS: Mapping[str, Step] = {"rights": name_peers}
"""What is done after the SQL of a migration, by its name."""


class StoreUnusable(AntiphonError):
    """The database cannot be used as it is; the message says why and what to do."""

    default_code = "store_unusable"


def migrations(dialect: Literal["sqlite", "postgres"] = "sqlite") -> Iterator[tuple[int, str, str]]:
    """Number, name and text of each migration, ascending.

    What only one database understands stands in a file of its own, `NNNN_name.<dialect>.sql`, and comes after the rest.
    """
    folder = resources.files("antiphon.store").joinpath("schema")
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if match := re.fullmatch(r"(\d{4})_(\w+)\.sql", entry.name):
            own = folder.joinpath(f"{match[1]}_{match[2]}.{dialect}.sql")
            text = entry.read_text("utf-8") + (own.read_text("utf-8") if own.is_file() else "")
            yield int(match[1]), match[2], text


def newest_schema() -> int:
    """The number of the newest migration that this program has."""
    return max(number for number, _, _ in migrations())


def recognise(connection: "Connection", path: Path) -> list[int]:
    """The numbers of the migrations that were applied, ascending; writes nothing.

    Raises `StoreUnusable` for another program's file or a newer version's.
    """
    applied = _applied(connection, path)
    newest, _, _ = list(migrations())[-1]
    if applied and applied[-1] > newest:
        raise StoreUnusable(
            f"Database is of a newer version: {str(path)!r} has schema {applied[-1]}, this program knows "
            f"{newest}. Install the newer Antiphon, or restore a backup made before the upgrade.",
            code="store_newer",
        )
    return applied


def migrate(connection: "Connection", *, path: Path, now_ms: int) -> None:
    """Applies what is missing, each migration in a transaction of its own.

    Raises `StoreUnusable` for another program's file, a newer version's, or a corrupt one.
    """
    try:
        applied = recognise(connection, path)
        for number, name, text in migrations():
            if number not in applied:
                _apply(connection, number, name, text, now_ms)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            raise StoreUnusable(
                f"Disk is full: {str(path)!r} cannot be brought up to date. Free some space and start again.",
                code="disk_full",
            ) from error
        raise StoreUnusable(
            f"Database is corrupt: {str(path)!r} ({error}). It was left as it is; restore a backup.",
            code="store_corrupt",
        ) from error


def statements(text: str, words: Mapping[str, str]) -> Iterator[str]:
    """The statements of a migration without comments, its placeholders in the words of a dialect."""
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    text = re.sub(r"--[^\n]*", "", text)
    yield from (statement.strip() for statement in text.split(";\n") if statement.strip())


def _carry_out(connection: "Connection", step: Step) -> None:
    asking = step()
    asked = next(asking, None)
    while asked is not None:
        rows = connection.execute(asked.text, asked.values).fetchall()
        try:
            asked = asking.send(rows)
        except StopIteration:
            return


def _applied(connection: "Connection", path: Path) -> list[int]:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
    if "schema_migrations" in tables:
        rows = connection.execute("SELECT version FROM schema_migrations ORDER BY version").fetchall()
        return [int(row[0]) for row in rows]
    if tables:
        raise StoreUnusable(
            f"Database is not Antiphon's: {str(path)!r} holds other tables. Choose another home with --home.",
            code="store_foreign",
        )
    return []


def _apply(connection: "Connection", number: int, name: str, text: str, now_ms: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
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
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
