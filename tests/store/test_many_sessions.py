"""What is done all the time on PostgreSQL costs the same however many sessions and runs are stored."""

from collections.abc import Generator
from pathlib import Path

import psycopg
import pytest

from antiphon.app import open_app
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import SessionId, SessionRow
from antiphon.domain.keys import parse_key
from antiphon.domain.targets import NamedTarget
from antiphon.store.database import Named, Query, Transaction
from antiphon.store.jobs import list_undelivered
from tests.postgres import fresh_database
from tests.store.test_postgres import open_store

pytestmark = pytest.mark.anyio

MANY, FEW = 3_000, 300


@pytest.fixture
def url() -> Generator[str]:
    with fresh_database() as address:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO sessions (id, key, agent_id, kind, status, source_kind, source_interactive, type, "
                "metadata, created_at, interacted_at, updated_at, incarnation) "
                "SELECT n, 'agent:main:api:' || n, 'main', 'main', 'idle', 'api', 0, 'direct', '{}', 0, 0, n, "
                f"'api:' || n FROM generate_series(1, {MANY}) n".encode()
            )
            connection.execute(
                "INSERT INTO incarnations (id, session, first_seq, started_at) "
                f"SELECT 'api:' || n, n, 1, 0 FROM generate_series(1, {MANY}) n".encode()
            )
            connection.execute(
                "INSERT INTO runs (id, session, incarnation, agent_id, seq, newest_seq, status, mode, principal, "
                "created_at) SELECT 'run_' || n, n, 'api:' || n, 'main', 1, 1, "
                "CASE n WHEN 7 THEN 'queued' WHEN 8 THEN 'running' ELSE 'ok' END, 'followup', 'owner', 0 "
                f"FROM generate_series(1, {MANY}) n".encode()
            )
            connection.execute("ANALYZE")
        yield address


def rows_read(url: str, table: str) -> int:
    """How many rows of the table were read, in its own order or that of an index."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(
            "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = %s", (table,)
        )
        row = found.fetchone()
        assert row is not None
        return row[0]


async def tell(query: Query | Transaction) -> None:
    """Lets the server say at once what this connection has read."""
    await query.fetch_one("SELECT 1 FROM (SELECT pg_stat_force_next_flush()) told")


@pytest.mark.parametrize(
    ("named", "row"),
    [
        (NamedTarget(parse_key("agent:main:api:9"), None), 9),
        (NamedTarget(None, SessionId("api:11")), 11),
        (NamedTarget(parse_key("agent:main:api:none"), None), None),
    ],
)
async def test_a_session_that_is_named_by_key_or_id_is_locked_without_reading_the_others(
    url: str, named: Named, row: int | None
) -> None:
    async def lock(tx: Transaction) -> None:
        await tell(tx)
        if row is not None:
            await tx.execute("UPDATE sessions SET steps = steps + 1 WHERE id = ?", (row,))

    async with open_store(url) as database:
        before = rows_read(url, "sessions")
        await database.run(lock, sessions=(named, SessionRow(5)))
        await database.run(lock, sessions=(named,))
        assert rows_read(url, "sessions") - before < FEW


async def test_work_without_a_job_is_found_without_reading_the_runs_that_ended(url: str) -> None:
    async def look(query: Query) -> list[SessionRow]:
        found = await list_undelivered(query, 5, 10)
        await tell(query)
        return found

    async with open_store(url) as database:
        before = rows_read(url, "runs")
        assert sorted(await database.read(look)) == [7, 8]
        assert rows_read(url, "runs") - before < FEW


async def test_a_session_lists_those_that_it_sees_without_reading_all(home: Path, url: str) -> None:
    settings = {"database": {"url": url, "connections": 3}, "tools": {"sessions": {"visibility": "agent"}}}
    async with open_app(home, Config.model_validate(settings)) as app:
        target = app.services.sessions.target("agent:main:api:9")
        await app.services.sessions.open(OWNER, target)
        await app.database.read(tell)
        before = rows_read(url, "sessions")
        listed = await app.tool_calls.call(OWNER, target, "sessions_list", {"limit": 20})
        await app.database.read(tell)
        assert listed["count"] == 20
        assert rows_read(url, "sessions") - before < FEW
