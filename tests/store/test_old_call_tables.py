"""Calls from outside of older versions, which were in three tables: each origin still names what it named."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing

import psycopg
import pytest

from antiphon.store.migrations import SQLITE_WORDS, Migration, migrations, statements
from antiphon.store.postgres.schema import migrations as postgres_migrations
from antiphon.store.postgres.schema import prepare
from tests.claims import requirement
from tests.postgres import fresh_database

pytestmark = pytest.mark.anyio

NAME = "calls"
_SESSION = (
    "INSERT INTO sessions (id, key, agent_id, kind, status, source_kind, source_interactive, type, metadata, "
    "created_at, interacted_at, updated_at) VALUES (1, 'k', 'main', 'other', 'idle', 'api', 1, 'direct', '{}', 0, 0, 0)"
)
_APPROVAL = (
    "INSERT INTO approvals (id, session, incarnation, run, origin, agent_id, principal, state, calls, asked_at, "
    "expires_at, is_due, begun_at, begun_by, outcome) VALUES ({}, 'main', 'person:a', 'decided', '[]', 0, 0, {})"
)
_KEYED = "INSERT INTO keyed_calls (id, origin, session, sha256, begun_at, begun_by, outcome, person) VALUES ({})"
BEFORE = (
    _SESSION,
    _APPROVAL.format("'due', 1, 'i', NULL, '1:a:due'", "1, NULL, NULL, NULL"),
    _APPROVAL.format("'cut', 1, 'i', NULL, '1:a:cut'", "1, 5, 'dead', NULL"),
    _APPROVAL.format("'over', 1, 'i', NULL, NULL", "0, 5, 'dead', '{}'"),
    _APPROVAL.format("'of run', 1, 'i', 'run', NULL", "0, NULL, NULL, NULL"),
    "INSERT INTO approval_origins (origin, session, approval) VALUES ('1:a:joined', 1, 'of run'), "
    "('1:a:due', 1, 'of run')",
    _KEYED.format("'ran', '1:a:ran', 1, 'h', 7, 'dead', '{}', 'person:a'"),
    _KEYED.format("'runs', '1:a:runs', 1, 'h', 7, 'dead', NULL, NULL"),
    _KEYED.format("'both', '1:a:cut', 1, 'h', 7, 'dead', '{}', NULL"),
    "INSERT INTO link_undo_rows (source, place, key) VALUES ('g', 'approvals.origin', '1:a:due'), "
    "('g', 'approval_origins.origin', '1:a:due'), ('g', 'keyed_calls.origin', '1:a:ran'), "
    "('g', 'keyed_calls.person', 'ran')",
)
FETCH = "SELECT id, origin, approval, sha256, is_due, begun_at, begun_by, outcome, person FROM calls ORDER BY id"
AFTER = [
    ("cut", "1:a:cut", "cut", "", 1, 5, "dead", None, None),
    ("due", "1:a:due", "due", "", 1, None, None, None, None),
    ("joined 1:a:joined", "1:a:joined", "of run", "", 0, None, None, None, None),
    ("over", None, "over", "", 0, 5, "dead", "{}", None),
    ("ran", "1:a:ran", None, "h", 0, 7, "dead", "{}", "person:a"),
    ("runs", "1:a:runs", None, "h", 1, 7, "dead", None, None),
]
FETCH_UNDOS = "SELECT place, key FROM link_undo_rows ORDER BY place, key"
UNDOS = [("calls.origin", "1:a:due"), ("calls.origin", "1:a:ran"), ("calls.person", "ran")]


def older(listed: Iterable[Migration]) -> list[Migration]:
    found = list(listed)
    return found[: [name for _, name, _ in found].index(NAME)]


@requirement("tools:1", "approvals:3", "approvals:5", "access:3")
def test_an_embedded_home_keeps_its_calls() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for _, name, text in migrations():
            if name == NAME:
                for statement in BEFORE:
                    connection.execute(statement)
            for statement in statements(text, SQLITE_WORDS):
                connection.execute(statement)
        assert connection.execute(FETCH).fetchall() == AFTER
        assert connection.execute(FETCH_UNDOS).fetchall() == UNDOS


@requirement("tools:1", "approvals:3", "approvals:5", "access:3")
async def test_a_server_keeps_its_calls() -> None:
    with fresh_database(is_empty=True) as url:
        await prepare(url, 0, migrations=lambda: older(postgres_migrations()))
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in BEFORE:
                connection.execute(statement.encode())
        await prepare(url, 0)
        with psycopg.connect(url) as connection:
            assert sorted(connection.execute(FETCH.encode()).fetchall()) == AFTER
            assert sorted(connection.execute(FETCH_UNDOS.encode()).fetchall()) == UNDOS
