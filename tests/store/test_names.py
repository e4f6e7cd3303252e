"""Sessions are found by their names in any case and any script, the same on both databases."""

import sqlite3
from collections.abc import Collection, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.ids import SessionRow
from antiphon.engine.sessions.sessions import SessionAttributes, SessionFilter
from antiphon.store.database import Transaction
from antiphon.store.migrations import SQLITE_WORDS, Migration, migrations, statements
from antiphon.store.moments import Moments
from antiphon.store.names import ROWS_AT_ONCE, UPGRADE_MS, fold_names
from antiphon.store.postgres.schema import migrations as postgres_migrations
from antiphon.store.postgres.schema import prepare
from antiphon.store.sqlite import SqliteDatabase
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.postgres import fresh_database

pytestmark = pytest.mark.anyio

NAMES = {
    "ПРИВЕТ Мир": ("привет", "ПРИВЕТ", "Мир привет", "ривЕ"),
    "Die MÜLLERIN": ("müllerin", "MÜLLERIN", "mu\u0308ller", "die MÜLL"),
    "Straße": ("strasse", "STRASSE", "straße", "STRAẞE"),
    "ΣΊΣΥΦΟΣ": ("σίσυφος", "σίσυφοσ", "ΣΊΣΥΦΟΣ"),
    "ＦＵＬＬ width": ("full", "FULL WIDTH", "ｆｕｌｌ"),
    "ﬁne Ligature": ("fine", "FINE"),
    "Title": ("TITLE", "title", "itl"),
    "100% of_a!b": ("100%", "of_a!b", "OF_A!B"),
    "東京都": ("京", "東京"),
}
"""Labels, and searches that find them."""


@requirement("list:1")
async def test_names_are_found_in_any_case_and_script(open_home: OpenHome) -> None:
    async with open_home() as app:
        sessions = app.services.sessions

        async def found(search: str) -> list[str]:
            page = await sessions.list(OWNER, SessionFilter(search=search), limit=100)
            return sorted(session.key.value.removeprefix("agent:main:") for session in page.sessions)

        for number, name in enumerate(NAMES):
            target, renamed = sessions.target(f"api:l{number}"), sessions.target(f"api:d{number}")
            await sessions.open(OWNER, target, attributes=SessionAttributes(label=name))
            await sessions.open(OWNER, renamed)
            await sessions.patch(OWNER, renamed, {"display_name": name})
        for number, searches in enumerate(NAMES.values()):
            for search in searches:
                assert await found(search) == [f"api:d{number}", f"api:l{number}"], search
        assert await found("l0 МИР") == ["api:l0"]  # a word of the key, and one of the label
        assert await found("100_ of") == await found("привет Титул") == []
        for nothing in ("\0", "title\0", "title \0", "\0title"):
            assert await found(nothing) == []
        await sessions.open(OWNER, sessions.target("agent:main:api:straße"))
        assert "api:straße" in await found("API:STRASSE")
        await sessions.open(OWNER, sessions.target("webhook:door:direct:Ana.B"))
        assert await found("ana.b") == ["webhook:door:direct:Ana.B"]


async def test_a_session_is_not_found_by_a_name_that_it_no_longer_has(open_home: OpenHome) -> None:
    async with open_home() as app:
        sessions = app.services.sessions
        target = sessions.target("api:one")
        await sessions.open(OWNER, target, attributes=SessionAttributes(label="МОСКВА"))

        async def is_found(search: str) -> bool:
            return bool((await sessions.list(OWNER, SessionFilter(search=search), limit=1)).sessions)

        for label in ("КИЕВ", "wien", None):
            await sessions.patch(OWNER, target, {"label": label})
            assert not await is_found("москва") and await is_found(label or "one")
        await sessions.patch(OWNER, target, {"label": "ЯЛТА", "display_name": "ОСЛО"})
        assert await is_found("ялта осло")
        await sessions.delete(OWNER, target)
        await sessions.open(OWNER, target)
        assert not await is_found("ялта") and not await is_found("осло") and await is_found("one")


def ignore(*changes: Collection[SessionRow]) -> None:
    return


COUNT = ROWS_AT_ONCE + 2


def before() -> Iterable[tuple[str, tuple[Any, ...]]]:
    """More sessions than one statement reads, of a schema without folded names."""
    for row in range(1, COUNT + 1):
        yield (
            "INSERT INTO sessions (id, key, agent_id, kind, status, source_kind, source_interactive, type, metadata, "
            "created_at, interacted_at, updated_at, label) "
            "VALUES (?, ?, 'main', 'other', 'idle', 'api', 1, 'direct', '{}', 0, 0, 0, ?)",
            (row, f"agent:main:api:{row}", "plain" if row % 2 else f"ЖУК {row}"),
        )


def check(found: list[tuple[Any, ...]]) -> None:
    assert [tuple(row) for row in found] == [
        (row, None, None if row % 2 else f"жук {row}", None) for row in range(1, COUNT + 1)
    ]


FETCH = "SELECT id, folded_key, folded_label, folded_display_name FROM sessions ORDER BY id"


def older(listed: Iterable[Migration]) -> list[Migration]:
    found = list(listed)
    return found[: [name for _, name, _ in found].index("names")]


async def test_the_names_of_an_earlier_schema_are_folded_embedded(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE schema_migrations (version INTEGER PRIMARY KEY, name TEXT, applied_at BIGINT)")
        for number, name, text in older(migrations()):
            for statement in statements(text, SQLITE_WORDS):
                connection.execute(statement)
            connection.execute("INSERT INTO schema_migrations VALUES (?, ?, 0)", (number, name))
        for text, values in before():
            connection.execute(text, values)
    await (await SqliteDatabase.open(path, on_commit=ignore, moments=Moments())).close()
    with closing(sqlite3.connect(path)) as connection:
        check(connection.execute(FETCH).fetchall())


async def test_the_names_of_an_earlier_schema_are_folded_on_a_server() -> None:
    with fresh_database(is_empty=True) as url:
        await prepare(url, 0, migrations=lambda: older(postgres_migrations()))
        with psycopg.connect(url, autocommit=True) as connection:
            for text, values in before():
                connection.execute(text.replace("?", "%s").encode(), values)
        await prepare(url, 0)
        with psycopg.connect(url) as connection:
            check(connection.execute(FETCH.encode()).fetchall())


@requirement("list:1")
async def test_a_start_folds_what_older_processes_stored_during_an_upgrade() -> None:
    with fresh_database(is_empty=True) as url:
        await prepare(url, 0, migrations=lambda: older(postgres_migrations()))
        await prepare(url, UPGRADE_MS)
        with psycopg.connect(url, autocommit=True) as connection:
            for text, values in before():  # a process that does not know of the folded columns
                connection.execute(text.replace("?", "%s").encode(), values)
            connection.execute("UPDATE sessions SET updated_at = %s", (UPGRADE_MS,))
            connection.execute("UPDATE sessions SET folded_label = 'its last name', label = 'plain' WHERE id = 1")
        await prepare(url, UPGRADE_MS + 1)
        with psycopg.connect(url) as connection:
            check(connection.execute(FETCH.encode()).fetchall())
            connection.execute("UPDATE sessions SET folded_label = 'not read again' WHERE id = 2")
            connection.commit()
        await prepare(url, 2 * UPGRADE_MS + 1)
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT folded_label FROM sessions WHERE id = 2").fetchone() == (
                "not read again",
            )


async def test_a_name_that_changes_while_names_are_folded_keeps_its_own(open_home: OpenHome) -> None:
    async with open_home() as app:
        sessions = app.services.sessions
        target = sessions.target("api:one")
        row = (await sessions.open(OWNER, target, attributes=SessionAttributes(label="МОСКВА"))).session.row

        async def fold_late(tx: Transaction) -> None:
            asking = fold_names()
            found = await tx.fetch_all(*next(asking))
            await tx.execute("UPDATE sessions SET folded_label = NULL WHERE id = ?", (row,))
            stale = asking.send([(*found[0][:2], "ПРАГА", *found[0][3:])])
            statement, values = stale
            await tx.execute(f"-- while nobody else writes\n{statement}", values)

        await app.database.run(fold_late)
        assert not (await sessions.list(OWNER, SessionFilter(search="прага"), limit=1)).sessions
