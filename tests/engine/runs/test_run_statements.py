"""How many statements a message and its run send to PostgreSQL; each is a round trip."""

from typing import Any

import anyio
import pytest
from psycopg import AsyncRawCursor

from tests.conftest import OpenHome
from tests.engine.stage import ask, open_session
from tests.waiting import SECONDS

MOST = 31


@pytest.mark.anyio
@pytest.mark.parametrize("database_section", ["postgres"], indirect=True)
async def test_a_run_takes_few_statements(open_home: OpenHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the store's cursors, jobs aside, for any run beside which nothing else asks the database."""
    statements: list[str] = []
    execute = AsyncRawCursor[Any].execute

    async def counted(self: AsyncRawCursor[Any], query: Any, *arguments: Any, **named: Any) -> Any:
        statements.append(str(query))
        return await execute(self, query, *arguments, **named)

    monkeypatch.setattr(AsyncRawCursor, "execute", counted)
    async with open_home() as app:
        await open_session(app, "api:a")
        await ask(app, "api:a", "hello")
        with anyio.move_on_after(SECONDS):
            while not 0 < len(statements) <= MOST:
                statements.clear()
                await ask(app, "api:a", "hello")
    assert 0 < len(statements) <= MOST, "\n".join(statements)
