"""What it costs PostgreSQL to search for a word that stands in most messages."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest
from psycopg import RawCursor

from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.actor import OWNER
from antiphon.engine.access.reach import Rights, find_reach
from antiphon.policy.acts import Act
from antiphon.store import search as index
from antiphon.store.codec import moment
from antiphon.store.database import Row, SqlValue
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import config, find_session, open_session
from tests.engine.views.test_search import caller_of, search, store

SESSIONS = 30
PER_SESSION = 100
ROWS_PER_MESSAGE = 50
"""So many rows may the steps of a plan handle together, for each message in the index."""


class RowCounter:
    """Implements `Query`, and counts the rows that the steps of all plans handle."""

    now_ms, now = 0, moment(0)

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._cursor = RawCursor(connection)
        self.rows = 0.0

    async def fetch_one(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        return next(iter(await self.fetch_all(statement, parameters)), None)

    async def fetch_all(self, statement: str, parameters: Sequence[SqlValue] = ()) -> list[Row]:
        first, *others = statement.split("?")
        numbered = (first + "".join(f"${number}{part}" for number, part in enumerate(others, start=1))).encode()
        found = self._cursor.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + numbered, parameters).fetchone()
        assert found is not None
        plan = json.loads(found[0]) if isinstance(found[0], str) else found[0]
        self.rows += sum(_handled(step) for step in _steps(plan[0]["Plan"]))
        return self._cursor.execute(numbered, parameters).fetchall()


def _steps(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield step
    for each in step.get("Plans", ()):
        yield from _steps(each)


def _handled(step: dict[str, Any]) -> float:
    removed = sum(count for name, count in step.items() if name.startswith("Rows Removed by"))
    return step["Actual Loops"] * (step["Actual Rows"] + removed)


@pytest.mark.anyio
@requirement("search:1")
@pytest.mark.parametrize("database_section", ["postgres"], indirect=True)
@pytest.mark.parametrize("is_counted", [False, True], ids=["new", "counted"])
async def test_a_search_for_a_common_word_looks_at_each_message_a_few_times(
    open_home: OpenHome, database_section: DatabaseSection, is_counted: bool
) -> None:
    """Before the server has counted the rows of its tables, and after."""
    texts = [" ".join(["common", *(f"word{turn}of{place}" for place in range(40))]) for turn in range(PER_SESSION)]
    async with open_home(config(tools__sessions__visibility="agent")) as app:
        for number in range(SESSIONS):
            session = await open_session(app, f"api:n{number}")
            await store(app, session, texts)
        main = await find_session(app, "api:n0")
        assert len(await search(app, main, "common", limit=5)) == 5
        assert database_section.url is not None
        with psycopg.connect(database_section.url.get_secret_value(), autocommit=True) as connection:
            if is_counted:
                connection.execute("ANALYZE")
            for actor in (OWNER, caller_of(main)):
                counter = RowCounter(connection)
                reach = await find_reach(counter, Rights(actor, app.services.rules), Act.READ)
                found, _ = await index.find_messages(counter, reach, "common", before=2**63 - 1, depth=1024, limit=11)
                assert len(found) == 11
                assert 0 < counter.rows < ROWS_PER_MESSAGE * SESSIONS * PER_SESSION
