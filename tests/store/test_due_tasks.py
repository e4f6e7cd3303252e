"""The next slot among many tasks is found by one index, however many there are. Contract: tasks 1."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from antiphon.app import open_app
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.schedule import Every, Schedule
from antiphon.domain.stored_task import NewTask
from antiphon.store import tasks
from antiphon.store.database import Transaction
from tests.claims import requirement
from tests.store.test_run_plans import InstructionCounter

pytestmark = pytest.mark.anyio

AHEAD = datetime(2100, 1, 1, tzinfo=UTC)
AHEAD_MS = int(AHEAD.timestamp() * 1000)
MOST_INSTRUCTIONS = 200


async def _multiply(tx: Transaction, times: int) -> None:
    """Copies of the one task, each due a minute later than the one before."""
    names = [str(row[1]) for row in await tx.fetch_all("PRAGMA table_info(tasks)")]
    chosen = [{"id": "t.id || n.i", "next_at": "t.next_at + n.i * 60000"}.get(name, f"t.{name}") for name in names]
    await tx.execute(
        f"WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {times}) "
        f"INSERT INTO tasks ({', '.join(names)}) SELECT {', '.join(chosen)} FROM n, tasks t"
    )


@requirement("tasks:1")
@pytest.mark.parametrize("count", [10, 10_000])
async def test_the_next_slot_is_found_without_reading_other_tasks(home: Path, count: int) -> None:
    async with open_app(home, Config()) as app:
        every = Every(60, AHEAD - timedelta(minutes=1))
        new = NewTask(name="tick", prompt="look", schedule=Schedule(every, "UTC"))
        await app.services.tasks.create(OWNER, app.services.sessions.target("main"), [new])
        await app.database.run(_multiply, count)
    with closing(sqlite3.connect(home / "antiphon.db")) as connection:
        counter = InstructionCounter(connection)
        await tasks.next_due(counter, 0)  # reads the schema
        counter.instructions = 0
        assert await tasks.next_due(counter, 0) == AHEAD_MS
        assert await tasks.list_due(counter, AHEAD_MS - 1, None, 100) == []
        assert counter.instructions < MOST_INSTRUCTIONS
        first = await tasks.list_due(counter, AHEAD_MS + count * 60_000, None, 5)
        second = await tasks.list_due(counter, AHEAD_MS + count * 60_000, first[-1], 5)
        due = [each.next_at_ms for each in (*first, *second)]
        assert due == [AHEAD_MS + number * 60_000 for number in range(10)]
        assert counter.instructions < 3 * MOST_INSTRUCTIONS
