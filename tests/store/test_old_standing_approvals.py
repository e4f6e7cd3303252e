"""What was allowed always before its classification was stored: as secret as can be, where its request is gone."""

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

NAME = "members_and_standing"
BEFORE = (
    "INSERT INTO standing_approvals (id, agent_id, principal, tool, definition, arguments, approval, created_at, "
    "created_by) VALUES ('a', 'main', 'person:owner', 'wipe', 'd', '{}', 'gone', 0, 'person:owner')"
)
FETCH = "SELECT level, compartments, person FROM standing_approvals"
AFTER = [(3, 0, "people")]


def older(listed: Iterable[Migration]) -> list[Migration]:
    found = list(listed)
    return found[: [name for _, name, _ in found].index(NAME)]


@requirement("flow:3", "approvals:3")
def test_an_embedded_home_hides_what_nobody_can_classify() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for _, name, text in migrations():
            if name == NAME:
                connection.execute(BEFORE)
            for statement in statements(text, SQLITE_WORDS):
                connection.execute(statement)
        assert connection.execute(FETCH).fetchall() == AFTER


@requirement("flow:3", "approvals:3")
async def test_a_server_hides_what_nobody_can_classify() -> None:
    with fresh_database(is_empty=True) as url:
        await prepare(url, 0, migrations=lambda: older(postgres_migrations()))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(BEFORE.encode())
        await prepare(url, 0)
        with psycopg.connect(url) as connection:
            assert connection.execute(FETCH.encode()).fetchall() == AFTER
