"""What a database of before principals named persons becomes, on each backend."""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from antiphon.domain.ids import SessionRow
from antiphon.domain.person import Identity
from antiphon.store.migrations import SQLITE_WORDS, Migration, StoreUnusable, migrations, statements
from antiphon.store.moments import Moments
from antiphon.store.old_principals import present_actor
from antiphon.store.postgres.schema import migrations as postgres_migrations
from antiphon.store.postgres.schema import prepare
from antiphon.store.sqlite import SqliteDatabase
from tests.claims import requirement
from tests.postgres import fresh_database

pytestmark = pytest.mark.anyio

ANNA, EVE = "guest:webhook:door:anna", "guest:webhook:door:eve:2"


def id_of(peer: str) -> str:
    return Identity(channel="webhook", account="door", platform_id=peer).person_id


A, E, NOBODY = f"person:{id_of('anna')}", f"person:{id_of('eve:2')}", f"person:{id_of('')}"
FETCH = (
    "SELECT id, name, role, is_suspended FROM people WHERE id = 'owner' OR id LIKE 'w-%' ORDER BY name",
    "SELECT channel, account, platform_id, person FROM identities ORDER BY platform_id",
    "SELECT session, principal, stored_bytes FROM participants ORDER BY session, stored_bytes",
    "SELECT id, principal, is_favoured FROM runs ORDER BY id",
    "SELECT principal FROM exchanges",
    "SELECT principal FROM reports",
    "SELECT kind, principal FROM tokens ORDER BY kind",
    "SELECT actor FROM events ORDER BY seq",
)


def before() -> Iterable[tuple[str, Sequence[Any]]]:
    """A chat with the owner and two peers, and work of each."""
    yield (
        "INSERT INTO sessions (id, key, agent_id, kind, status, source_kind, source_interactive, type, metadata, "
        "created_at, interacted_at, updated_at) VALUES (1, 'agent:main:main', 'main', 'main', 'idle', 'api', 1, "
        "'direct', '{}', 0, 0, 0)",
        (),
    )
    for size, principal in ((7, ANNA), (8, EVE)):
        yield "INSERT INTO participants (session, principal, stored_bytes) VALUES (1, ?, ?)", (principal, size)
    for seq, actor in enumerate(("owner:owner", ANNA, "agent")):
        yield (
            "INSERT INTO events (session, seq, incarnation, type, created_at, actor, level, compartments, integrity, "
            "payload) VALUES (1, ?, 'i', 'user_message', 0, ?, 0, 0, 0, '{}')",
            (seq, actor),
        )
    runs = (
        ("r1", "owner:owner", "queued", None),
        ("r2", "owner:owner", "ok", 1),
        ("r3", ANNA, "queued", None),
        ("r4", EVE, "ok", 1),
        ("r5", "guest:webhook:door", "ok", 1),
        ("r6", "agent:agent:main:main", "queued", None),
        ("r7", "agent:agent:main:main", "ok", 1),
    )
    for seq, (run_id, principal, status, ended) in enumerate(runs):
        yield (
            "INSERT INTO runs (id, session, incarnation, agent_id, seq, newest_seq, status, mode, principal, "
            "created_at, ended_at) VALUES (?, 1, 'i', 'main', ?, ?, ?, 'enqueue', ?, 0, ?)",
            (run_id, seq, seq, status, principal, ended),
        )
    yield (
        "INSERT INTO exchanges (id, origin, requester, requester_incarnation, target, target_incarnation, principal, "
        "chain, hops, request, request_run, stage, max_turns, max_chain_tokens, is_awaited, created_at) VALUES "
        "('x', 'o', 1, 'i', 1, 'i', ?, 'r2', 1, '', 'r5', 'request', 0, 0, 0, 0)",
        (EVE,),
    )
    yield (
        "INSERT INTO reports (id, run, child, principal, stage, created_at) VALUES ('r3', 'r3', 1, ?, 'done', 0)",
        (ANNA,),
    )
    for kind in ("browser", "owner"):
        yield (
            "INSERT INTO tokens (hash, kind, principal, created_at) VALUES (?, ?, 'owner:owner', 0)",
            (kind, kind),
        )
    yield (
        "INSERT INTO tokens (hash, kind, principal, session, created_at) VALUES "
        "('session', 'session', 'agent:agent:main:main', 1, 0)",
        (),
    )


AFTER: tuple[list[tuple[Any, ...]], ...] = (
    [
        (id_of("anna"), "anna", "guest", 0),
        (id_of("eve:2"), "eve:2", "guest", 0),
        ("owner", "owner", "owner", 0),
    ],
    [("webhook", "door", "anna", id_of("anna")), ("webhook", "door", "eve:2", id_of("eve:2"))],
    [(1, A, 7), (1, E, 8)],
    [
        ("r1", "person:owner", 1),
        ("r2", "person:owner", 0),
        ("r3", A, 0),
        ("r4", E, 0),
        ("r5", NOBODY, 0),
        ("r6", "person:owner", 0),
        ("r7", "agent:agent:main:main", 0),
    ],
    [(E,)],
    [(A,)],
    [("browser", "person:owner"), ("owner", "person:owner"), ("session", "person:owner")],
    [("owner:owner",), (ANNA,), ("agent",)],
)


def older(listed: Iterable[Migration]) -> list[Migration]:
    found = list(listed)
    return found[: [name for _, name, _ in found].index("people")]


@requirement("access:1")
async def test_an_embedded_database_gets_its_people(tmp_path: Path) -> None:
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


@requirement("access:1")
async def test_a_server_gets_its_people() -> None:
    with fresh_database(is_empty=True) as url:
        await prepare(url, 0, migrations=lambda: older(postgres_migrations()))
        with psycopg.connect(url, autocommit=True) as connection:
            for text, values in before():
                connection.execute(text.replace("?", "%s").encode(), values)
        await prepare(url, 0)
        with psycopg.connect(url) as connection:
            check(lambda text: connection.execute(text.encode()).fetchall())


async def test_a_server_at_which_an_older_version_works_is_left_alone() -> None:
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
            assert connection.execute("SELECT to_regclass('people')").fetchone() == (None,)
        await prepare(url, 0, look_seconds=0.1)  # it has stopped beating


async def beat(url: str) -> None:
    """The heart of a process."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while True:
            await connection.execute("UPDATE processes SET beats = beats + 1")
            await anyio.sleep(0.05)


def check(fetch: Callable[[str], list[Any]]) -> None:
    for text, expected in zip(FETCH, AFTER, strict=True):
        assert [tuple(row) for row in fetch(text)] == expected, text


def test_events_show_their_actor_as_principals_are_written_now() -> None:
    assert present_actor("owner:owner") == "person:owner"
    assert present_actor(ANNA) == A
    for actor in ("agent", "person:anna", "agent:agent:main:main", "system:antiphon"):
        assert present_actor(actor) == actor
