"""Statements of one unit or one read on a connection."""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, TypeVar, TypeVarTuple

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor

from antiphon.domain.actor import Asker
from antiphon.domain.errors import AntiphonError
from antiphon.domain.ids import SessionRow
from antiphon.store.database import Kept, Row, SqlValue, Transaction
from antiphon.store.effects import Effects
from antiphon.store.moments import AtMoment, Moment

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

Defer = Callable[[AsyncConnection[Any], SessionRow, Asker], Awaitable[None]]
"""Stores the message "this session has work" in the connection's open transaction."""


class NeedsSnapshot(Exception):
    """The query reads with more than one statement, and all of them must see one state."""


@lru_cache(maxsize=2048)
def _numbered(statement: str) -> bytes:
    """The statement with `$1, $2 …` for its question marks, as PostgreSQL expects."""
    parts = statement.split("?")
    return "".join(
        part if index == len(parts) - 1 else f"{part}${index + 1}" for index, part in enumerate(parts)
    ).encode()


@lru_cache(maxsize=2048)
def _prepare(statement: str) -> bool | None:
    """False if the plan depends on the values: rare words are looked up, common ones found while scanning."""
    return False if "message_words(" in statement else None


class PostgresQuery(AtMoment):
    """Reads; the first statement alone needs no transaction."""

    __slots__ = ("_cursor", "_is_alone", "_is_used")

    def __init__(self, cursor: AsyncRawCursor[Row], moment: Moment, *, is_alone: bool) -> None:
        super().__init__(moment)
        self._cursor = cursor
        self._is_alone = is_alone
        self._is_used = False

    async def fetch_one(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        await self._execute(statement, parameters)
        return await self._cursor.fetchone()

    async def fetch_all(self, statement: str, parameters: Sequence[SqlValue] = ()) -> list[Row]:
        await self._execute(statement, parameters)
        return await self._cursor.fetchall()

    async def _execute(self, statement: str, parameters: Sequence[SqlValue]) -> None:
        if self._is_alone and self._is_used:
            raise NeedsSnapshot
        self._is_used = True
        await _execute(self._cursor, statement, parameters)


_WRITES = re.compile(r"(?:INSERT INTO|UPDATE|DELETE FROM) (\w+) ")


class PostgresTransaction(AtMoment):
    """Combines writes whose results are not used into one statement: each round trip costs more than the writes.

    Parts of one statement do not see each other's writes. So none reads, and no two write to the same table.
    """

    __slots__ = ("_connection", "_cursor", "_defer", "_tables", "_waiting", "effects", "has_sent", "kept")

    def __init__(
        self, connection: AsyncConnection[Row], cursor: AsyncRawCursor[Row], moment: Moment, defer: Defer
    ) -> None:
        super().__init__(moment)
        self._connection = connection
        self._cursor = cursor
        self._defer = defer
        self._waiting: list[tuple[str, Sequence[SqlValue]]] = []
        self._tables: set[str] = set()
        self.effects = Effects()
        self.has_sent = False
        """Whether the server may have written for the present unit."""
        self.kept: list[Kept] = []
        """What the present unit stores in any case."""

    def begin_unit(self, moment: Moment) -> None:
        self.has_sent = False
        self.kept.clear()
        self.moment = moment
        moment.begin()

    async def fetch_one(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        await self.flush()
        await self._send(statement, parameters)
        return await self._cursor.fetchone()

    async def fetch_all(self, statement: str, parameters: Sequence[SqlValue] = ()) -> list[Row]:
        await self.flush()
        await self._send(statement, parameters)
        return await self._cursor.fetchall()

    async def execute(self, statement: str, parameters: Sequence[SqlValue] = ()) -> None:
        written = _WRITES.match(statement)
        if written is None or "SELECT" in statement:
            await self.flush()
            await self._send(statement, parameters)
            return
        if written[1] in self._tables:
            await self.flush()
        self._tables.add(written[1])
        self._waiting.append((statement, tuple(parameters)))

    async def change(self, statement: str, parameters: Sequence[SqlValue] = ()) -> int:
        await self.flush()
        await self._send(statement, parameters)
        return self._cursor.rowcount

    async def _send(self, statement: str, parameters: Sequence[SqlValue]) -> None:
        if not statement.startswith("SELECT"):
            self.has_sent = True
        await _execute(self._cursor, statement, parameters)

    @asynccontextmanager
    async def attempt(self) -> AsyncGenerator[None]:
        await self.flush()
        before, had_sent, kept = self.effects.copy(), self.has_sent, len(self.kept)
        await self._cursor.execute("SAVEPOINT attempt")
        try:
            yield
            await self.flush()
        except AntiphonError:
            self.forget()
            await self._cursor.execute("ROLLBACK TO SAVEPOINT attempt")
            await self._cursor.execute("RELEASE SAVEPOINT attempt")
            self.effects, self.has_sent = before, had_sent
            await self.store_kept(kept)
            raise
        await self._cursor.execute("RELEASE SAVEPOINT attempt")

    async def keep(self, write: Callable[[Transaction, *Ts], Coroutine[Any, Any, R]], *arguments: *Ts) -> R:
        self.kept.append((write, arguments))
        return await write(self, *arguments)

    async def store_kept(self, first: int = 0) -> None:
        """Runs anew what the unit keeps, from that one on, since it was undone."""
        for write, arguments in self.kept[first:]:
            await write(self, *arguments)

    async def flush(self) -> None:
        """Sends the waiting writes."""
        if not self._waiting:
            return
        self.has_sent = True
        waiting, self._waiting = self._waiting, []
        self._tables.clear()
        if len(waiting) == 1:
            await _execute(self._cursor, *waiting[0])
        else:
            statements = tuple(statement for statement, _ in waiting)
            await _execute(self._cursor, _together(statements), [value for _, values in waiting for value in values])

    def forget(self) -> None:
        """Drops the waiting writes of a unit that is undone."""
        self._waiting.clear()
        self._tables.clear()

    def wake(self, session: SessionRow) -> None:
        self.effects.woken.add(session)

    async def dispatch(self, session: SessionRow, asker: Asker) -> None:
        if session not in self.effects.dispatched:
            self.effects.dispatched[session] = None
            await self.flush()
            self.has_sent = True
            await self._defer(self._connection, session, asker)

    def interrupt(self, session: SessionRow) -> None:
        self.effects.interrupted.add(session)


@lru_cache(maxsize=1024)
def _together(statements: tuple[str, ...]) -> str:
    *first, last = statements
    parts = ", ".join(f"s{number} AS ({statement})" for number, statement in enumerate(first))
    return f"WITH {parts} {last}"


async def _execute(cursor: AsyncRawCursor[Row], statement: str, parameters: Sequence[SqlValue]) -> None:
    try:
        await cursor.execute(_numbered(statement), parameters, prepare=_prepare(statement))
    except psycopg.DataError:
        # PostgreSQL's texts cannot contain NUL; display-only text may lose it.
        cleaned = [value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in parameters]
        if cleaned == list(parameters):
            raise
        await cursor.execute(_numbered(statement), cleaned)
