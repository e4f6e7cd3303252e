"""Copies an embedded database while another process may be writing to it, and checks a copy."""

import sqlite3
from contextlib import closing
from pathlib import Path

from antiphon.store.migrate import APPLICATION_ID, recognise
from antiphon.store.migrations import StoreUnusable

PAGES = 1024
"""Copied in one step, which holds up nobody."""


def copy_database(path: Path, copy: Path) -> int:
    """Writes the present content of the database to a new file; returns its schema.

    The copy is one snapshot: everything that was committed before it began, and nothing of what was committed later.
    Writers are not held up; the write-ahead log grows meanwhile. Raises `StoreUnusable`.
    """
    try:
        with (
            closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)) as source,
            closing(sqlite3.connect(copy, isolation_level=None)) as target,
        ):
            # A transaction that was begun before is the backup's too. Without it, each commit would start it anew.
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM sqlite_master").fetchone()
            _check_owner(source, path)
            applied = recognise(source, path)
            source.backup(target, pages=PAGES)
            source.execute("COMMIT")
            target.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file, without a log beside it
            return applied[-1]
    except sqlite3.Error as error:
        raise StoreUnusable(f"Database cannot be copied: {str(path)!r} ({error})", code="store_corrupt") from error


def copy_state(path: Path, copy: Path) -> None:
    """Writes what another library's embedded database holds at one moment to a new file. Raises `StoreUnusable`."""
    try:
        with (
            closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE").fetchall()
    except sqlite3.Error as error:
        raise StoreUnusable(f"Database cannot be copied: {str(path)!r} ({error})", code="store_corrupt") from error


def check_copy(path: Path) -> None:
    """Raises `StoreUnusable` unless the file is a whole database that this program can open. Changes nothing."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            _check_owner(connection, path)
            recognise(connection, path)
            found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(5)").fetchall()]
    except sqlite3.Error as error:
        raise StoreUnusable(f"Database of the backup cannot be read: {error}", code="store_corrupt") from error
    if found != ["ok"]:
        raise StoreUnusable(
            f"Database of the backup is damaged: {'; '.join(found)[:300]}. Use another backup.", code="store_corrupt"
        )


def _check_owner(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StoreUnusable(f"Database is not Antiphon's: {str(path)!r}.", code="store_foreign")
