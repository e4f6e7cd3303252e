"""What it costs to find a session's next run does not grow with the runs that it has had."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from antiphon.app import open_app
from antiphon.building import Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import SessionRow
from antiphon.domain.message import text_content
from antiphon.domain.targets import NamedTarget
from antiphon.engine.runs.runner import ConstantRunner
from antiphon.store import runs as ledger
from antiphon.store.codec import moment
from antiphon.store.database import Row, SqlValue
from tests.claims import requirement
from tests.waiting import SECONDS


class InstructionCounter:
    """Implements `Query`, and counts the database's instructions."""

    now_ms, now = 0, moment(0)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.instructions = 0
        connection.set_progress_handler(self._count, 1)

    def _count(self) -> int:
        self.instructions += 1
        return 0

    async def fetch_one(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        return self._connection.execute(statement, parameters).fetchone()

    async def fetch_all(self, statement: str, parameters: Sequence[SqlValue] = ()) -> list[Row]:
        return self._connection.execute(statement, parameters).fetchall()


@pytest.mark.anyio
@requirement("runs:1")
async def test_the_next_run_is_found_without_reading_those_that_ended(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with open_app(home, Config(), Parts(runner=ConstantRunner("ok"))) as app:
        for name, turns in (("new", 2), ("old", 60)):
            opened = await app.services.sessions.open(OWNER, app.services.sessions.target(f"api:{name}"))
            for _ in range(turns):
                target = NamedTarget(opened.session.key, None)
                posted = await app.services.inbox.post(OWNER, target, text_content("hello"))
                assert posted.run_id is not None
                await app.services.waits.wait(posted.run_id, timedelta(seconds=SECONDS))
    with closing(sqlite3.connect(home / "antiphon.db", isolation_level=None)) as connection:
        sessions = [row[0] for row in connection.execute("SELECT id FROM sessions WHERE turn_count > 0 ORDER BY id")]
        assert len(sessions) == 2
        for session in sessions:
            newest = "(SELECT id FROM runs WHERE session = ? ORDER BY seq DESC LIMIT 1)"
            connection.execute(f"UPDATE runs SET status = 'queued', ended_at = NULL WHERE id = {newest}", (session,))
        counts: list[int] = []
        for session in sessions:
            counter = InstructionCounter(connection)
            first = await ledger.find_first(counter, SessionRow(session))
            assert first is not None and first.in_log.run.session == session
            counts.append(counter.instructions)
    assert abs(counts[0] - counts[1]) <= 5
