"""What a database of before the peers of webhooks were principals of their own becomes, on each backend."""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from antiphon.domain.ids import SessionRow
from antiphon.store.migrate import STEPS
from antiphon.store.migrations import SQLITE_WORDS, Migration, migrations, statements
from antiphon.store.moments import Moments
from antiphon.store.old_principals import present_actor
from antiphon.store.postgres.schema import migrations as postgres_migrations
from antiphon.store.postgres.schema import prepare
from antiphon.store.sqlite import SqliteDatabase
from tests.postgres import fresh_database

pytestmark = pytest.mark.anyio

OLD = "guest:webhook:door"
FETCH = (
    "SELECT session, principal FROM participants ORDER BY session, principal",
    "SELECT id, principal, is_sandboxed FROM runs ORDER BY id",
    "SELECT id, principal, is_sandboxed FROM exchanges ORDER BY id",
    "SELECT id, principal, is_sandboxed FROM reports ORDER BY id",
    "SELECT session, actor FROM events ORDER BY session, seq",
)
KEYS = {
    1: "agent:main:webhook:door:direct:anna",
    2: "agent:main:webhook:door:direct:eve%3A2:thread:t",
    3: "agent:main:subagent:x",
    4: "agent:main:main",
    5: "agent:main:cli:other",
}


def before() -> Iterable[tuple[str, Sequence[Any]]]:
    """Two chats, one with a child, the session that all share, and one that a chat sent a message to."""
    for row, key in KEYS.items():
        ancestor = 1 if row == 3 else None
        yield (
            "INSERT INTO sessions (id, key, agent_id, kind, status, source_kind, source_interactive, type, metadata, "
            "created_at, interacted_at, updated_at, ancestor_0) VALUES (?, ?, 'main', 'other', 'idle', 'channel', 1, "
            "'direct', '{}', 0, 0, 0, ?)",
            (row, key, ancestor),
        )
    for row in (1, 2, 3, 4):
        yield "INSERT INTO participants VALUES (?, ?)", (row, OLD)
        yield (
            "INSERT INTO events (session, seq, incarnation, type, created_at, actor, level, compartments, integrity, "
            "payload) VALUES (?, 1, 'i', 'user_message', 0, ?, 0, 0, 0, '{}')",
            (row, OLD),
        )
    runs = [
        ("r1", 1, OLD, "queued", None, None, None),
        ("r2", 2, OLD, "ok", 1, None, None),
        ("r3", 3, OLD, "queued", None, "r1", None),
        ("r4", 4, OLD, "queued", None, None, '["webhook", "bob", "door", null]'),
        ("r5", 5, OLD, "queued", None, "r2", None),
        ("r6", 5, "owner:owner", "queued", None, None, None),
        ("r7", 4, OLD, "ok", 1, None, None),
    ]
    for seq, (run_id, row, principal, status, ended, chain, place) in enumerate(runs):
        yield (
            "INSERT INTO runs (id, session, incarnation, agent_id, seq, newest_seq, status, mode, principal, "
            "created_at, ended_at, chain, place) VALUES (?, ?, 'i', 'main', ?, ?, ?, 'enqueue', ?, 0, ?, ?, ?)",
            (run_id, row, seq, seq, status, principal, ended, chain, place),
        )
    yield (
        "INSERT INTO exchanges (id, origin, requester, requester_incarnation, target, target_incarnation, principal, "
        "chain, hops, request, request_run, stage, max_turns, max_chain_tokens, is_awaited, created_at) VALUES "
        "('x', 'o', 2, 'i', 5, 'i', ?, 'r2', 1, '', 'r5', 'request', 0, 0, 0, 0)",
        (OLD,),
    )
    yield (
        "INSERT INTO reports (id, run, child, principal, stage, created_at) VALUES ('r3', 'r3', 3, ?, 'done', 0)",
        (OLD,),
    )


AFTER = (
    [(1, f"{OLD}:anna"), (2, f"{OLD}:eve:2"), (3, f"{OLD}:anna")],
    [
        ("r1", f"{OLD}:anna", 0),
        ("r2", f"{OLD}:eve:2", 0),
        ("r3", f"{OLD}:anna", 1),
        ("r4", f"{OLD}:bob", 0),
        ("r5", f"{OLD}:eve:2", 1),
        ("r6", "owner:owner", 0),
        ("r7", OLD, 0),
    ],
    [("x", f"{OLD}:eve:2", 1)],
    [("r3", f"{OLD}:anna", 0)],
    [(1, f"{OLD}:anna"), (2, f"{OLD}:eve:2"), (3, f"{OLD}:anna"), (4, OLD)],
)


def older(listed: Iterable[Migration]) -> list[Migration]:
    found = list(listed)
    return found[: [name for _, name, _ in found].index("rights")]


async def test_an_embedded_database_gives_each_peer_its_own(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE schema_migrations (version INTEGER PRIMARY KEY, name TEXT, applied_at BIGINT)")
        for number, name, text in older(migrations()):
            for statement in statements(text, SQLITE_WORDS):
                connection.execute(statement)
            connection.execute("INSERT INTO schema_migrations VALUES (?, ?, 0)", (number, name))
        for text, values in before():
            connection.execute(text, values)

    def ignore(*changes: Collection[SessionRow]) -> None:
        return

    await (await SqliteDatabase.open(path, on_commit=ignore, moments=Moments())).close()
    with closing(sqlite3.connect(path)) as connection:
        check(lambda text: connection.execute(text).fetchall())


async def test_a_server_gives_each_peer_its_own() -> None:
    with fresh_database(is_empty=True) as url:
        await prepare(url, 0, migrations=lambda: older(postgres_migrations()))
        with psycopg.connect(url, autocommit=True) as connection:
            for text, values in before():
                connection.execute(text.replace("?", "%s").encode(), values)
        await prepare(url, 0)
        with psycopg.connect(url) as connection:
            check(lambda text: connection.execute(text.encode()).fetchall())


def check(fetch: Callable[[str], list[Any]]) -> None:
    """A later step makes persons of the principals, and leaves the actors of events."""
    for text, expected in zip(FETCH, AFTER, strict=True):
        if "events" not in text:
            expected = [
                tuple(present_actor(value) if isinstance(value, str) else value for value in row) for row in expected
            ]
        assert [tuple(row) for row in fetch(text)] == expected, text


def test_each_step_belongs_to_a_migration() -> None:
    assert STEPS.keys() <= {name for _, name, _ in migrations()}
