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


class SameStatements:
    """What SQLite alone takes for the statements of an append, on a home's own tables, in batches."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("PRAGMA foreign_keys=ON")
        self._keys = [row[0] for row in self._connection.execute("SELECT key FROM sessions")]

    def batches(self, count: int) -> float:
        """Appends a second in transactions of one append to each session."""
        start = time.perf_counter()
        for number in range(count):
            self._connection.execute("BEGIN IMMEDIATE")
            for key in self._keys:
                self._put(key, number)
            self._connection.execute("COMMIT")
        return count * len(self._keys) / (time.perf_counter() - start)

    def _put(self, key: str, number: int) -> None:
        row = self._connection.execute(
            "SELECT id, key, agent_id, incarnation, status, type, last_seq, first_seq, description IS NOT NULL "
            "FROM sessions WHERE key = ? AND deleted_at IS NULL",
            (key,),
        ).fetchone()
        at = 2_000_000_000_000 + number
        self._connection.execute(
            "UPDATE sessions SET last_seq = last_seq + ?, updated_at = CASE WHEN updated_at < ? THEN ? ELSE updated_at "
            "END, preview = ?, message_count = COALESCE(message_count, 0) + ? WHERE id = ?",
            (1, at, at, TEXT[:160], 1, row[0]),
        )
        self._connection.execute(
            "INSERT INTO events (session, seq, incarnation, created_at, type, role, actor, run_id, message_id, "
            "level, compartments, integrity, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                row[0],
                row[6] + 1,
                row[3],
                at,
                "user_message",
                "user",
                "owner:owner",
                None,
                None,
                0,
                0,
                0,
                TEXT + TEXT[:90],
            ),
        )
