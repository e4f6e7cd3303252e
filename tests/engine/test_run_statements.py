"""How many statements a message and its run send to PostgreSQL; each is a round trip."""

from typing import Any

import pytest
from psycopg import AsyncRawCursor

from tests.conftest import OpenHome
from tests.engine.stage import ask, open_session

MOST = 31
RUNS = 15


@pytest.mark.anyio
@pytest.mark.parametrize("database_section", ["postgres"], indirect=True)
async def test_a_run_takes_few_statements(open_home: OpenHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fewest of several runs: beside some of them, something else asks the database too."""
    statements: list[str] = []
    execute = AsyncRawCursor[Any].execute

    async def counted(self: AsyncRawCursor[Any], query: Any, *arguments: Any, **named: Any) -> Any:
        statements.append(str(query))
        return await execute(self, query, *arguments, **named)

    monkeypatch.setattr(AsyncRawCursor, "execute", counted)
    async with open_home() as app:
        await open_session(app, "api:a")
        fewest: list[str] = []
        for number in range(RUNS):
            statements.clear()
            await ask(app, "api:a", f"hello {number}")
            if number == 0 or len(statements) < len(fewest):
                fewest = list(statements)
    assert 0 < len(fewest) <= MOST, "\n".join(fewest)
