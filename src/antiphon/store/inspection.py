"""Reads every row of a database, to find what is damaged. Changes nothing."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import cast

from msgspec import Struct

from antiphon.domain.errors import Unavailable
from antiphon.store.codec import asked_calls, check_delay, check_payload, json_list, json_object, place, sources, told
from antiphon.store.migrate import find_schema_damage
from antiphon.store.sqlite_errors import unusable

BATCH = 500
MOST_NAMED = 5
"""Of damaged rows, and of the problems that the database itself reports."""

RESTORE = (
    "Stop Antiphon, keep a copy of the home, and restore a backup. Without one, save what can still be read, session "
    "by session: `antiphon sessions history KEY --json`."
)

JSON_COLUMNS = {
    "sessions": {"metadata": json_object, "told": told},
    "events": {"payload": check_payload},
    "runs": {"place": place, "delay": check_delay},
    "reports": {"place": place},
    "spawns": {"attach_as": json_object, "receipt": json_object},
    "processes": {"agents": json_list},
    "approvals": {"calls": asked_calls, "sources": sources},
    "standing_approvals": {"fields": json_list},
}
"""The columns with JSON text, by table, and what reads them."""

NAMES = {
    "events": ("session", "seq"),
    "runs": ("id",),
    "sessions": ("key",),
    "reports": ("id",),
    "spawns": ("child",),
    "processes": ("id",),
    "approvals": ("id",),
    "standing_approvals": ("id",),
}
"""The columns that name a row for people."""

_MEND = "Restore a backup. Without one, stop Antiphon, keep a copy of the database, and run there:"
REMEDIES = {
    "events": "Entries of a log are shown as unreadable and the rest works. Restore a backup to get them back, or "
    "continue in a fork of the session.",
    "sessions": "Requests for these sessions, and lists with them, answer store_corrupt; the rest works. "
    f"{_MEND} UPDATE sessions SET metadata = '{{}}', told = NULL WHERE key = 'KEY'. That loses the session's metadata, "
    "and its places may be told again why there is no reply.",
    "runs": "A run with a damaged delay works, and shows none. With a damaged place, the run and lists with it answer "
    f"store_corrupt. {_MEND} UPDATE runs SET COLUMN = NULL WHERE id = 'RUN'. Without its place, the run's reply stays "
    "in the log.",
    "reports": "The results of these sub-agents cannot be delivered, and requests for them answer store_corrupt. "
    f"{_MEND} UPDATE reports SET place = NULL WHERE id = 'ID'. A run of the requester then answers the result, and "
    "no channel gets it.",
    "spawns": "The work of these sub-agents cannot go on, and requests for it answer store_corrupt. "
    f"{_MEND} UPDATE spawns SET COLUMN = NULL WHERE child = NUMBER. That loses the list of their attachments, "
    "not the files.",
    "processes": "No process starts, or notices that another one is dead. Stop Antiphon and run in the database: "
    "DELETE FROM processes WHERE id = 'ID'. That loses nothing: each process writes its row at its start.",
    "approvals": "These requests can neither be shown nor decided, and lists with them answer store_corrupt. "
    f"{_MEND} UPDATE approvals SET COLUMN = '[]' WHERE id = 'ID'. Then deny the request: its run asks anew.",
    "standing_approvals": "Calls that they may cover answer store_corrupt. Revoke them: stop Antiphon and run in the "
    "database: DELETE FROM standing_approvals WHERE id = 'ID'. Their calls ask again.",
}
"""What to do about values of a table that cannot be read; COLUMN stands for the damaged one."""


class Damage(Struct, frozen=True, kw_only=True):
    """One damaged part, and what to do about it."""

    part: str
    detail: str
    remedy: str


class Inspection(Struct, frozen=True, kw_only=True):
    rows: int
    """The number of rows that could be read."""
    found: tuple[Damage, ...]


class TableReading:
    """The rows of one table, as they are read."""

    def __init__(self, table: str, columns: Sequence[str]) -> None:
        self._table = table
        self._readers = [
            (name, columns.index(name), reader)
            for name, reader in JSON_COLUMNS.get(table, {}).items()
            if name in columns
        ]
        self._names = [(name, columns.index(name)) for name in NAMES.get(table, ()) if name in columns]
        self._damaged: list[str] = []
        self.rows = 0

    def add(self, rows: Iterable[Sequence[object]]) -> None:
        for row in rows:
            self.rows += 1
            if columns := self._damaged_columns(row):
                self._damaged.append(f"{self._name(row)} ({', '.join(columns)})")

    def _damaged_columns(self, row: Sequence[object]) -> list[str]:
        return [name for name, index, reader in self._readers if not _is_sound(row[index], reader)]

    def _name(self, row: Sequence[object]) -> str:
        return " ".join(f"{name} {row[index]}" for name, index in self._names)

    def damage(self) -> Iterator[Damage]:
        if self._damaged:
            named = "; ".join(self._damaged[:MOST_NAMED])
            more = len(self._damaged) - MOST_NAMED
            rows = "1 row holds" if len(self._damaged) == 1 else f"{len(self._damaged)} rows hold"
            yield Damage(
                part=self._table,
                detail=f"{rows} values that cannot be read: {named}" + (f" and {more} more" if more > 0 else ""),
                remedy=REMEDIES[self._table],
            )


def _is_sound(value: object, reader: Callable[[str], object]) -> bool:
    try:
        if isinstance(value, str):
            value.encode()  # a text that is not UTF-8 was read with half characters in its place
        if value is not None:
            reader(cast("str", value))  # a value of another kind is damage too, which readers find
    except (Unavailable, UnicodeEncodeError):
        return False
    return True


def inspect_file(path: Path) -> Inspection:
    """What is damaged in an embedded database, which may be in use. Raises `StoreUnusable` if it cannot be opened."""
    rows, found = 0, list[Damage]()
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.text_factory = _half_text
            tables = connection.execute(
                "SELECT name, sql LIKE '%WITHOUT ROWID%' FROM sqlite_master "
                "WHERE type = 'table' AND sql LIKE 'CREATE TABLE%' ORDER BY name"
            ).fetchall()
            if why := find_schema_damage(connection):
                found.append(Damage(part="schema", detail=why, remedy=RESTORE))
            for table, is_by_key in tables:
                reading, damage = _read_table(connection, table, is_by_key=bool(is_by_key))
                rows += reading
                found += damage
            found += _check_integrity(connection, path, are_tables_whole=not found)
    except sqlite3.DatabaseError as error:
        raise unusable(path, error) from error
    return Inspection(rows=rows, found=tuple(found))


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _key_columns(connection: sqlite3.Connection, table: str) -> list[str]:
    columns = connection.execute("SELECT name, pk FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", (table,))
    return [_quoted(name) for name, _ in columns.fetchall()]


def _half_text(stored: bytes) -> str:
    return stored.decode(errors="surrogateescape")


def _check_integrity(connection: sqlite3.Connection, path: Path, *, are_tables_whole: bool) -> Iterator[Damage]:
    is_cut = False
    try:
        problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(100)").fetchall()]
    except sqlite3.DatabaseError as error:
        problems, is_cut = [str(error)], True
    if problems == ["ok"]:
        return
    detail = "; ".join(problems[:MOST_NAMED]) + (" …" if len(problems) > MOST_NAMED else "")
    if not are_tables_whole:
        yield Damage(part="file", detail=detail, remedy=RESTORE)
    elif is_cut or not all("index" in line for line in problems):
        yield Damage(part="file", detail=f"{detail}; all rows can be read", remedy=RESTORE)
    else:  # all that an index holds is in its table too
        remedy = f'Only indexes are damaged. Stop Antiphon, keep a copy of the home, and run: sqlite3 {path} "REINDEX"'
        yield Damage(part="indexes", detail=detail, remedy=remedy)


def _read_table(connection: sqlite3.Connection, table: str, *, is_by_key: bool) -> tuple[int, list[Damage]]:
    """Reads the table itself, not an index: without row ids by its key, as SQLite ignores `NOT INDEXED` there."""
    reading: TableReading | None = None
    try:
        order = f" ORDER BY {', '.join(_key_columns(connection, table))}" if is_by_key else ""
        cursor = connection.execute(f"SELECT * FROM {_quoted(table)} NOT INDEXED{order}")
        reading = TableReading(table, [column[0] for column in cursor.description])
        while rows := cursor.fetchmany(BATCH):
            reading.add(rows)
    except sqlite3.DatabaseError as error:
        count = 0 if reading is None else reading.rows
        broken = Damage(part=table, detail=f"cannot be read after {count} rows ({error})", remedy=RESTORE)
        return count, [broken, *(() if reading is None else reading.damage())]
    return reading.rows, list(reading.damage())
