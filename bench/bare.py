"""What the disk and SQLite alone can do: the references."""

import sqlite3
import time
from pathlib import Path

TEXT = "x" * 200


class BareLog:
    """Two statements in a transaction, in WAL with `synchronous=FULL`, without a thread or a task."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=FULL"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute("CREATE TABLE session (id INTEGER PRIMARY KEY, last_seq INTEGER)")
        self._connection.execute(
            "CREATE TABLE event (session INTEGER, seq INTEGER, body TEXT, PRIMARY KEY (session, seq)) WITHOUT ROWID"
        )
        self._connection.executemany("INSERT INTO session VALUES (?, 0)", [(n,) for n in range(1, 65)])

    def append(self) -> float:
        """Seconds that one append took."""
        start = time.perf_counter()
        self._connection.execute("BEGIN IMMEDIATE")
        self._put(1)
        self._connection.execute("COMMIT")
        return time.perf_counter() - start

    def batches(self, count: int, size: int) -> float:
        """Appends a second in transactions of `size`, each to `size` sessions."""
        start = time.perf_counter()
        for _ in range(count):
            self._connection.execute("BEGIN IMMEDIATE")
            for session in range(1, size + 1):
                self._put(session)
            self._connection.execute("COMMIT")
        return count * size / (time.perf_counter() - start)

    def _put(self, session: int) -> None:
        row = self._connection.execute(
            "UPDATE session SET last_seq = last_seq + 1 WHERE id = ? RETURNING last_seq", (session,)
        ).fetchone()
        self._connection.execute("INSERT INTO event VALUES (?, ?, ?)", (session, row[0], TEXT))
