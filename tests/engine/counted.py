"""A database that counts what is asked of it."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from antiphon.store.database import Database, Query, Row, SqlValue


class CountedDatabase:
    """Counts the statements of what it reads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.statements = 0

    async def read(self, query: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Any:
        async def counted(inner: Query) -> Any:
            return await query(_CountedQuery(self, inner), *arguments)

        return await self._database.read(counted)


class _CountedQuery:
    def __init__(self, database: CountedDatabase, query: Query) -> None:
        self._database = database
        self._query = query
        self.now_ms, self.now = query.now_ms, query.now

    async def fetch_one(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        self._database.statements += 1
        return await self._query.fetch_one(statement, parameters)

    async def fetch_all(self, statement: str, parameters: Sequence[SqlValue] = ()) -> list[Row]:
        self._database.statements += 1
        return await self._query.fetch_all(statement, parameters)
