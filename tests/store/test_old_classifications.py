"""What a home of before events carried classifications becomes, on each backend."""

import logging
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from antiphon.domain.ids import SessionRow
from antiphon.store.migrations import SQLITE_WORDS, Migration, StoreUnusable, migrations, statements
from antiphon.store.moments import Moments
from antiphon.store.postgres.schema import migrations as postgres_migrations
from antiphon.store.postgres.schema import prepare
from antiphon.store.sqlite import SqliteDatabase
from tests.claims import requirement
from tests.postgres import fresh_database
from tests.store.test_old_principals import beat

pytestmark = pytest.mark.anyio

COLUMNS = "level, compartments, integrity"
EVENTS = (
    # incarnation, actor, run, stored classification, expected
    ("plain", "person:owner", None, (0, 0, 0), (0, 0, 0)),
    ("plain", "owner:owner", None, (0, 0, 0), (0, 0, 0)),
    ("plain", "agent", "owners", (0, 0, 0), (0, 0, 0)),
    ("plain", "system:antiphon", None, (0, 0, 0), (0, 0, 0)),
    ("shared", "person:owner", None, (0, 0, 0), (0, 0, 0)),
    ("shared", "person:w-1", None, (0, 0, 0), (0, 0, 1)),
    ("shared", "guest:webhook:door:anna", None, (0, 0, 0), (0, 0, 1)),
    ("shared", "agent", "guests", (0, 0, 0), (0, 0, 1)),
    ("shared", "agent:agent:main:main", None, (0, 0, 0), (0, 0, 1)),
    ("secret", "person:owner", None, (0, 0, 0), (2, 5, 0)),
    ("secret", "agent", "owners", (3, 2, 0), (3, 7, 0)),
    ("secret", "person:w-1", None, (2, 5, 0), (2, 5, 1)),
)


def older(listed: Iterable[Migration]) -> list[Migration]:
    found = list(listed)
    return found[: [name for _, name, _ in found].index("classifications")]


def session() -> Iterable[tuple[str, Sequence[Any]]]:
    yield (
        "INSERT INTO sessions (id, key, agent_id, kind, status, source_kind, source_interactive, type, metadata, "
        "created_at, interacted_at, updated_at) VALUES (1, 'agent:main:main', 'main', 'main', 'idle', 'api', 1, "
        "'direct', '{}', 0, 0, 0)",
        (),
    )
    for person, role in (("owner", "owner"), ("w-1", "guest")):
        yield (
            "INSERT INTO people (id, name, role, created_at) VALUES (?, ?, ?, 0) ON CONFLICT DO NOTHING",
            (person, person, role),
        )


def events() -> Iterable[tuple[str, Sequence[Any]]]:
    """A session of the owner alone, one with guests and other sessions, one whose taint is above what was stored."""
    for incarnation, taint in (("plain", (0, 0)), ("shared", (0, 0)), ("secret", (2, 5))):
        yield (
            "INSERT INTO incarnations (id, session, first_seq, started_at, taint_level, taint_compartments) "
            "VALUES (?, 1, 1, 0, ?, ?)",
            (incarnation, *taint),
        )
    for seq, (run_id, principal) in enumerate((("owners", "person:owner"), ("guests", "person:w-1"))):
        yield (
            "INSERT INTO runs (id, session, incarnation, agent_id, seq, newest_seq, status, mode, principal, "
            "created_at, ended_at) VALUES (?, 1, 'plain', 'main', ?, ?, 'ok', 'enqueue', ?, 0, 1)",
            (run_id, seq, seq, principal),
        )
    for seq, (incarnation, actor, run_id, stored, _) in enumerate(EVENTS):
        yield (
            f"INSERT INTO events (session, seq, incarnation, type, created_at, actor, run_id, {COLUMNS}, payload) "
            "VALUES (1, ?, ?, 'user_message', 0, ?, ?, ?, ?, ?, '{}')",
            (seq, incarnation, actor, run_id, *stored),
        )
        yield (
            "INSERT INTO indexed_messages (id, session, seq, incarnation, level, compartments) "
            "VALUES (?, 1, ?, ?, ?, ?)",
            (seq + 1, seq, incarnation, *stored[:2]),
        )


def check(found: list[Any], taints: list[Any], indexed: list[Any]) -> None:
    assert [tuple(row) for row in found] == [expected for *_, expected in EVENTS]
    assert [tuple(row) for row in indexed] == [expected[:2] for *_, expected in EVENTS]
    assert [tuple(row) for row in taints] == [("plain", 0, 0, 0), ("secret", 2, 5, 1), ("shared", 0, 0, 1)]


def summaries() -> Iterable[tuple[str, Sequence[Any]]]:
    """What `events` stores, with a summary in each incarnation by a run of the owner."""
    yield from events()
    for seq, incarnation in enumerate(("plain", "shared", "secret"), start=len(EVENTS)):
        yield (
            f"INSERT INTO events (session, seq, incarnation, type, created_at, actor, run_id, {COLUMNS}, payload) "
            "VALUES (1, ?, ?, 'compacted', 0, 'agent', 'owners', 0, 0, 0, '{}')",
            (seq, incarnation),
        )


def check_summaries(found: list[Any]) -> None:
    assert [tuple(row) for row in found] == [(0, 0, 0), (0, 0, 1), (2, 5, 1)]


SUMMARIES = f"SELECT {COLUMNS} FROM events WHERE type = 'compacted' ORDER BY seq"
FOUND = f"SELECT {COLUMNS} FROM events ORDER BY seq"
INDEXED = "SELECT level, compartments FROM indexed_messages ORDER BY seq"
TAINTS = "SELECT id, taint_level, taint_compartments, taint_integrity FROM incarnations ORDER BY id"


def ignore(*changes: Collection[SessionRow]) -> None:
    return


def embedded(path: Path, stored: Iterable[tuple[str, Sequence[Any]]]) -> None:
    """A database of the schema before, with these rows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE schema_migrations (version INTEGER PRIMARY KEY, name TEXT, applied_at BIGINT)")
        for number, name, text in older(migrations()):
            for statement in statements(text, SQLITE_WORDS):
                connection.execute(statement)
            connection.execute("INSERT INTO schema_migrations VALUES (?, ?, 0)", (number, name))
        for text, values in (*session(), *stored):
            connection.execute(text, values)


@requirement("flow:2")
async def test_events_of_an_embedded_home_are_classified(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "antiphon")
    path = tmp_path / "antiphon.db"
    embedded(path, events())
    await (await SqliteDatabase.open(path, on_commit=ignore, moments=Moments())).close()
    with closing(sqlite3.connect(path)) as connection:
        check(*(connection.execute(query).fetchall() for query in (FOUND, TAINTS, INDEXED)))
    (told,) = [record for record in caplog.records if getattr(record, "action", "") == "events_classified"]
    assert (told.__dict__["raised"], told.__dict__["untrusted"]) == (2, 5)


@requirement("flow:2", "flow:8")
async def test_summaries_with_words_of_strangers_are_untrusted_in_an_embedded_home(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    embedded(path, summaries())
    await (await SqliteDatabase.open(path, on_commit=ignore, moments=Moments())).close()
    with closing(sqlite3.connect(path)) as connection:
        check_summaries(connection.execute(SUMMARIES).fetchall())


@requirement("flow:2", "flow:8")
async def test_summaries_with_words_of_strangers_are_untrusted_on_a_server() -> None:
    with fresh_database(is_empty=True) as url:
        await prepare(url, 0, migrations=lambda: older(postgres_migrations()))
        with psycopg.connect(url, autocommit=True) as connection:
            for text, values in (*session(), *summaries()):
                connection.execute(text.replace("?", "%s").encode(), values)
        await prepare(url, 0)
        with psycopg.connect(url) as connection:
            check_summaries(connection.execute(SUMMARIES.encode()).fetchall())


@requirement("flow:2")
async def test_nothing_is_said_of_a_home_without_such_events(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "antiphon")
    path = tmp_path / "antiphon.db"
    embedded(path, ())
    await (await SqliteDatabase.open(path, on_commit=ignore, moments=Moments())).close()
    assert not [record for record in caplog.records if getattr(record, "action", "") == "events_classified"]


@requirement("flow:2")
async def test_events_on_a_server_are_classified() -> None:
    with fresh_database(is_empty=True) as url:
        await prepare(url, 0, migrations=lambda: older(postgres_migrations()))
        with psycopg.connect(url, autocommit=True) as connection:
            for text, values in (*session(), *events()):
                connection.execute(text.replace("?", "%s").encode(), values)
        await prepare(url, 0)
        with psycopg.connect(url) as connection:
            check(*(connection.execute(query.encode()).fetchall() for query in (FOUND, TAINTS, INDEXED)))


async def test_a_server_at_which_an_older_version_works_keeps_its_events() -> None:
    with fresh_database(is_empty=True) as url:
        await prepare(url, 0, migrations=lambda: older(postgres_migrations()))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO processes (id, role, host, pid, version, fingerprint, agents, beats, started_at) "
                "VALUES ('p1', 'all', 'attic', 4711, '0', 'f', '[]', 0, 0)"
            )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beat, url)
            with pytest.raises(StoreUnusable, match="4711 on attic") as refused:
                await prepare(url, 0, look_seconds=0.5)
            assert refused.value.code == "store_in_use"
            tasks.cancel_scope.cancel()
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT to_regclass('compartments')").fetchone() == (None,)
