"""Units on SQLite, where one writer holds everything, are held to what PostgreSQL needs: they say where they write."""

import inspect
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import datetime
from functools import wraps
from typing import Any, cast

import pytest

from antiphon.domain.actor import Asker
from antiphon.domain.ids import SessionRow
from antiphon.engine.audit.trail import RecordingDatabase
from antiphon.store.database import Named, Row, SqlValue, Transaction
from antiphon.store.locked import written
from antiphon.store.sqlite import SqliteDatabase

Unit = Callable[..., Coroutine[Any, Any, Any]]


class CheckedTransaction:
    """Lets a unit write only to sessions that it holds."""

    def __init__(self, tx: Transaction, unit: str) -> None:
        self._tx = tx
        self._unit = unit
        self._held: set[int] = set()

    async def hold_named(self, sessions: Sequence[Named]) -> None:
        for named in sessions:
            if isinstance(named, int):
                self.hold(named)
                continue
            if named.key is not None:
                found = await self._tx.fetch_all("SELECT id FROM sessions WHERE key = ?", (named.key.value,))
                self._held.update(row for (row,) in found)
            if named.session_id is not None:
                of_id = "SELECT session FROM incarnations WHERE id = ?"
                self._held.update(row for (row,) in await self._tx.fetch_all(of_id, (str(named.session_id),)))

    async def fetch_one(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        self._check(statement, parameters)
        row = await self._tx.fetch_one(statement, parameters)
        if row is not None and statement.startswith("INSERT INTO sessions "):
            self._held.add(row[0])
        return row

    async def fetch_all(self, statement: str, parameters: Sequence[SqlValue] = ()) -> list[Row]:
        self._check(statement, parameters)
        return await self._tx.fetch_all(statement, parameters)

    async def fetch_held(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        self._check(statement, parameters)
        return await self._tx.fetch_held(statement, parameters)

    async def execute(self, statement: str, parameters: Sequence[SqlValue] = ()) -> None:
        self._check(statement, parameters)
        await self._tx.execute(statement, parameters)

    async def change(self, statement: str, parameters: Sequence[SqlValue] = ()) -> int:
        self._check(statement, parameters)
        return await self._tx.change(statement, parameters)

    @property
    def now_ms(self) -> int:
        return self._tx.now_ms

    @property
    def now(self) -> datetime:
        return self._tx.now

    @property
    def request_id(self) -> str | None:
        return self._tx.request_id

    @property
    def process(self) -> str:
        return self._tx.process

    def new_id(self, kind: str) -> str:
        return self._tx.new_id(kind)

    def random_hex(self, digits: int) -> str:
        return self._tx.random_hex(digits)

    def hold(self, *sessions: SessionRow) -> None:
        self._held.update(sessions)

    def wake(self, session: SessionRow) -> None:
        self._tx.wake(session)

    async def dispatch(self, session: SessionRow, asker: Asker) -> None:
        await self._tx.dispatch(session, asker)

    def interrupt(self, session: SessionRow) -> None:
        self._tx.interrupt(session)

    def attempt(self) -> AbstractAsyncContextManager[None]:
        return self._tx.attempt()

    async def keep(self, write: Unit, *arguments: Any) -> Any:
        async def checked(_: Transaction, *again: Any) -> Any:
            return await write(self, *again)

        return await self._tx.keep(checked, *arguments)

    def _check(self, statement: str, parameters: Sequence[SqlValue]) -> None:
        if free := [session for session in written(statement, parameters) if session not in self._held]:
            raise AssertionError(f"Unit {self._unit!r} does not hold sessions {free}: {statement}")


@contextmanager
def checked_units() -> Generator[None]:
    """While this lasts, units on SQLite fail if they write to a session that they do not hold."""
    run = cast("Callable[..., Coroutine[Any, Any, Any]]", SqliteDatabase.run)

    @wraps(run)
    def run_checked(
        self: SqliteDatabase, unit: Unit, *arguments: Any, sessions: Sequence[Named] = ()
    ) -> Coroutine[Any, Any, Any]:
        frame = inspect.currentframe()
        assert frame is not None
        frame = frame.f_back
        while frame is not None and frame.f_globals["__name__"] == RecordingDatabase.__module__:
            frame = frame.f_back  # what runs it for somebody
        assert frame is not None
        caller: str = frame.f_globals["__name__"]
        if not caller.startswith("antiphon.") or caller.startswith("antiphon.testing"):
            return run(self, unit, *arguments, sessions=sessions)  # a test may do as it likes

        @wraps(unit)
        async def checked(tx: Transaction, *given: Any) -> Any:
            own = CheckedTransaction(tx, unit.__name__)
            await own.hold_named(sessions)
            return await unit(own, *given)

        return run(self, checked, *arguments, sessions=sessions)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteDatabase, "run", run_checked)
        yield
