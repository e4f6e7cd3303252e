"""What the counts of persons become that stood among those of agents, on each backend."""

import sqlite3
from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from antiphon.domain.ids import SessionRow
from antiphon.store.migrations import SQLITE_WORDS, Migration, migrations, statements
from antiphon.store.moments import Moments
from antiphon.store.postgres.schema import migrations as postgres_migrations
from antiphon.store.postgres.schema import prepare
from antiphon.store.sqlite import SqliteDatabase
from tests.claims import requirement
from tests.postgres import fresh_database

pytestmark = pytest.mark.anyio

BEFORE = (
    ("2026-03-01", "main", 9, 90),
    ("2026-03-01 people", "person:anna", 5, 50),
    ("2026-03-01 people", "guests", 6, 60),
    ("2026-03-01 told", "person:anna", 0, 0),
    ("2026-03-02 people", "person:anna", 7, 70),
    ("2026-03-02 told", "person:eve", 0, 0),
    ("minute", "person:anna", 3, 1_772_000_000_000),
)
INSERT = "INSERT INTO daily_usage (day, agent_id, tokens, microusd) VALUES (?, ?, ?, ?)"
AFTER = {
    "SELECT day, agent_id, tokens, microusd FROM daily_usage": [("2026-03-01", "main", 9, 90)],
    "SELECT day, spender, tokens, microusd, is_told FROM people_usage ORDER BY day, spender": [
        ("2026-03-01", "guests", 6, 60, 0),
        ("2026-03-01", "person:anna", 5, 50, 1),
        ("2026-03-02", "person:anna", 7, 70, 0),
        ("2026-03-02", "person:eve", 0, 0, 1),
    ],
    "SELECT sender, messages, since FROM message_paces": [("person:anna", 3, 1_772_000_000_000)],
}


def older(listed: Iterable[Migration]) -> list[Migration]:
    found = list(listed)
    return found[: [name for _, name, _ in found].index("people_usage")]


def check(fetch: Callable[[str], list[Any]]) -> None:
    for text, expected in AFTER.items():
        assert [tuple(row) for row in fetch(text)] == expected, text


@requirement("runs:6")
async def test_an_embedded_database_keeps_what_people_used(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE schema_migrations (version INTEGER PRIMARY KEY, name TEXT, applied_at BIGINT)")
        for number, name, text in older(migrations()):
            for statement in statements(text, SQLITE_WORDS):
                connection.execute(statement)
            connection.execute("INSERT INTO schema_migrations VALUES (?, ?, 0)", (number, name))
        connection.executemany(INSERT, BEFORE)

    def ignore(*changes: Collection[SessionRow]) -> None:
        return

    await (await SqliteDatabase.open(path, on_commit=ignore, moments=Moments())).close()
    with closing(sqlite3.connect(path)) as connection:
        check(lambda text: connection.execute(text).fetchall())


@requirement("runs:6")
async def test_a_server_keeps_what_people_used() -> None:
    with fresh_database(is_empty=True) as url:
        await prepare(url, 0, migrations=lambda: older(postgres_migrations()))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.cursor().executemany(INSERT.replace("?", "%s").encode(), BEFORE)
        await prepare(url, 0)
        with psycopg.connect(url) as connection:
            check(lambda text: connection.execute(text.encode()).fetchall())
