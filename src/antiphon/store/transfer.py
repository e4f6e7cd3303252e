"""Moves the content of an embedded database to a PostgreSQL database, in one transaction."""

import os
import sqlite3
from collections.abc import Callable, Collection
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from anyio import to_thread
from psycopg import AsyncConnection, sql
from psycopg.rows import tuple_row

from antiphon.domain.errors import Conflict
from antiphon.domain.ids import SessionRow
from antiphon.store.home_lock import take_lock
from antiphon.store.migrations import StoreUnusable
from antiphon.store.moments import Moments
from antiphon.store.postgres.link import connect
from antiphon.store.postgres.schema import place, prepare
from antiphon.store.sqlite import SqliteDatabase

LEFT_BEHIND = ("schema_migrations", "schema_hashes", "processes", "indexed_logs", "indexed_messages", "index_turns")
"""Tables about one database and its processes, not about sessions. The index of words is rebuilt."""
AUDIT = ("audit_chains", "audit_rows", "audit_denials", "audit_seals", "audit_sealed")
ROWS = 2_000
"""Rows to read and send at a time."""
_STATE = (
    "SELECT s.id, s.last_seq, COUNT(e.seq), COALESCE(MAX(e.seq), 0) FROM sessions s "
    "LEFT JOIN events e ON e.session = s.id GROUP BY s.id, s.last_seq ORDER BY s.id"
)

Report = Callable[[str, int, int], None]
"""Called with a table, the number of its rows copied so far, and their total."""


async def transfer(path: Path, old_path: Path, url: str, *, now_ms: int, report: Report) -> dict[str, int]:
    """Copies the database file to the PostgreSQL database; returns the number of rows by table.

    Then renames the file to `old_path`, with all its content, so that nobody keeps using it by accident.

    Ids and numbers stay. Running work has no owner in the new database, so the first worker takes it over.
    Raises `StoreUnusable`, also if a process uses the file, and `Conflict` for a target with sessions.
    """
    if not path.exists():
        raise StoreUnusable(f"Database is missing: {str(path)!r}. There is nothing to move.", code="store_missing")
    if old_path.exists():
        raise Conflict(f"File from an earlier move still exists: {str(old_path)!r}. Move it away.", code="moved_before")
    await _bring_up_to_date(path)
    await prepare(url, now_ms)
    lock = take_lock(path)
    try:
        # The last connection moves the log into the file and removes it; then the file contains everything.
        with closing(_open(path)) as source:
            rows = await _copy_all(source, url, report)
        path.rename(old_path)
    finally:
        os.close(lock)
    return rows


async def _bring_up_to_date(path: Path) -> None:
    def ignore(*changes: Collection[SessionRow]) -> None:
        return

    database = await SqliteDatabase.open(path, on_commit=ignore, moments=Moments())
    await database.close()


def _open(path: Path) -> sqlite3.Connection:
    source = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    source.text_factory = _text
    return source


def _text(stored: bytes) -> str:
    # PostgreSQL's texts hold no NUL.
    return stored.decode("utf-8", "replace").replace("\0", "\ufffd")


async def _copy_all(source: sqlite3.Connection, url: str, report: Report) -> dict[str, int]:
    target = await connect(url)
    try:
        source.execute("BEGIN")
        async with target.transaction():
            await target.execute("LOCK TABLE sessions IN EXCLUSIVE MODE")
            if await _number(target, sql.SQL("SELECT count(*) FROM sessions")):
                raise Conflict(
                    f"Database has sessions already: {place(url)}. Move the home to an empty database.",
                    code="target_not_empty",
                )
            for table in ("home_keys", "identities", "people", *AUDIT):
                await target.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))  # the home brings its own
            rows = {table: await _copy(source, target, table, report) for table in _tables(source)}
            await target.execute("UPDATE runs SET process = NULL")
            await _set_sequences(target)
            await _verify(source, target, rows)
            await target.execute("ANALYZE")  # until the server does it by itself, plans would expect empty tables
        return rows
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()
        raise StoreUnusable(
            f"Database did not accept the rows: {place(url)} ({reason[0] if reason else 'no answer'}). "
            "The home was not changed. Try again with an empty database.",
            code="move_failed",
        ) from error
    finally:
        await target.close()


def _tables(source: sqlite3.Connection) -> list[str]:
    """In order of creation, so that each table comes after those it refers to."""
    found = source.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid").fetchall()
    return [name for (name,) in found if name not in LEFT_BEHIND and not name.startswith(("sqlite_", "message_words"))]


async def _copy(source: sqlite3.Connection, target: AsyncConnection[Any], table: str, report: Report) -> int:
    columns = [name for _, name, *_ in source.execute(f'PRAGMA table_info("{table}")').fetchall()]
    total: int = source.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
    listed = sql.SQL(", ").join(map(sql.Identifier, columns))
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), listed)
    names = ", ".join(f'"{name}"' for name in columns)
    cursor = source.execute(f'SELECT {names} FROM "{table}"')
    done = 0
    report(table, done, total)
    async with target.cursor().copy(statement) as copy:
        while rows := await to_thread.run_sync(partial(cursor.fetchmany, ROWS)):
            for row in rows:
                await copy.write_row(row)
            done += len(rows)
            report(table, done, total)
    return total


async def _set_sequences(target: AsyncConnection[Any]) -> None:
    """Sets the sequences so that new rows get numbers above the copied ones."""
    found = await target.execute(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = current_schema() AND is_identity = 'YES' AND table_name NOT LIKE 'procrastinate%%'"
    )
    for table, column in await found.fetchall():
        statement = "SELECT setval(pg_get_serial_sequence(%s, %s), max({})) FROM {} HAVING max({}) IS NOT NULL"
        name = sql.Identifier(column)
        await target.execute(sql.SQL(statement).format(name, sql.Identifier(table), name), (table, column))


async def _verify(source: sqlite3.Connection, target: AsyncConnection[Any], rows: dict[str, int]) -> None:
    """Raises `StoreUnusable` unless both have the same number of rows, and each session the same events."""
    for table, count in rows.items():
        arrived = await _number(target, sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table)))
        if arrived != count:
            raise _differs(f"{arrived} of {count} rows of {table!r}")
    cursor = target.cursor(row_factory=tuple_row)
    await cursor.execute(_STATE)
    for left, right in zip(source.execute(_STATE), await cursor.fetchall(), strict=True):
        if left != right:
            raise _differs(f"session {left[0]} with last number, events and highest {right[1:]}, not {left[1:]}")


async def _number(target: AsyncConnection[Any], statement: sql.Composed | sql.SQL) -> int:
    row = await (await target.execute(statement)).fetchone()
    assert row is not None
    return row[0]


def _differs(what: str) -> StoreUnusable:
    return StoreUnusable(
        f"Database differs from what was copied: it has {what}. Nothing was moved, and the home was not changed.",
        code="move_failed",
    )
