"""Statements of one unit or one read on a connection."""

from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, TypeVar, TypeVarTuple

import psycopg

from antiphon.domain.actor import Asker
from antiphon.domain.errors import AntiphonError
from antiphon.domain.ids import SessionRow
from antiphon.store.database import Kept, NeedsSessions, Row, SqlValue, Transaction
from antiphon.store.effects import Effects
from antiphon.store.locked import written
from antiphon.store.moments import AtMoment, Moment
from antiphon.store.postgres.pipeline import BoundStatement, Pipeline, StatementResult

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

Defer = Callable[[SessionRow, Asker], tuple[str, Sequence[SqlValue]]]
"""The statement that stores the message "this session has work"."""


class NeedsSnapshot(Exception):
    """The query reads with more than one statement, and all of them must see one state."""


@lru_cache(maxsize=2048)
def _numbered(statement: str) -> bytes:
    """The statement with `$1, $2 …` for its question marks, as PostgreSQL expects."""
    parts = statement.split("?")
    return "".join(
        part if index == len(parts) - 1 else f"{part}${index + 1}" for index, part in enumerate(parts)
    ).encode()


_BEGIN = (BoundStatement(b"BEGIN"), BoundStatement(b"SELECT pg_current_xact_id()::text"))
_LOCK = "ORDER BY id FOR NO KEY UPDATE"
"""Other units may not write to the session, but may write rows that refer to it."""
_LOCK_ROWS = f"SELECT id FROM sessions WHERE id = ANY(?) {_LOCK}"
_LOCK_NAMED = (
    # No planner combines indexes of two tables: with `OR` it reads all sessions.
    "SELECT id, key FROM sessions WHERE id = ANY(ARRAY(SELECT unnest(CAST(? AS BIGINT[])) "
    "UNION ALL SELECT s.id FROM sessions s WHERE s.key = ANY(?) "
    f"UNION ALL SELECT i.session FROM incarnations i WHERE i.id = ANY(?))) {_LOCK}"
)


def _is_kept(statement: str) -> bool:
    """False if the plan depends on the values: rare words are looked up, common ones found while scanning."""
    return "message_words(" not in statement


class PostgresQuery(AtMoment):
    """Reads; the first statement alone needs no transaction."""

    __slots__ = ("_is_used", "_pipeline", "_snapshot")

    def __init__(self, pipeline: Pipeline, moment: Moment, *, snapshot: Sequence[BoundStatement] | None) -> None:
        """`snapshot` begins a transaction in which all statements see one state; without it, there may be one only."""
        super().__init__(moment)
        self._pipeline = pipeline
        self._snapshot = snapshot
        self._is_used = False

    async def fetch_one(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        return next(iter(await self.fetch_all(statement, parameters)), None)

    async def fetch_all(self, statement: str, parameters: Sequence[SqlValue] = ()) -> list[Row]:
        if self._is_used and self._snapshot is None:
            raise NeedsSnapshot
        before = () if self._is_used or self._snapshot is None else self._snapshot
        self._is_used = True
        return (await self._pipeline.trip([*before, _converted(self._pipeline, statement, parameters)]))[-1].rows


class PostgresTransaction(AtMoment):
    """What it only writes waits, and goes to the server with the next statement whose result is needed."""

    __slots__ = (
        "_before",
        "_defer",
        "_depth",
        "_first",
        "_held",
        "_is_writing",
        "_pipeline",
        "_trips",
        "_waiting",
        "effects",
        "has_sent",
        "kept",
        "xid",
    )

    def __init__(self, pipeline: Pipeline, moment: Moment, defer: Defer) -> None:
        super().__init__(moment)
        self._pipeline = pipeline
        self._defer = defer
        self._held: set[SessionRow] = set()
        self._waiting = [*_BEGIN]
        self._first = len(_BEGIN)
        """Where in `_waiting` the statements of the present unit begin."""
        self._is_writing = False
        """Whether one of those writes."""
        self._trips = 0
        self._depth = 0
        """How many attempts are under way, one within the other."""
        self.xid: str | None = None
        """The transaction's number, once it has begun on the server."""
        self.effects = Effects()
        self._before = Effects(), set[SessionRow]()
        """What the units before the present one asked for, and hold."""
        self.has_sent = False
        """Whether the server may have written for the present unit."""
        self.kept: list[Kept] = []
        """What the present unit stores in any case."""

    def begin_unit(self, moment: Moment) -> None:
        self.has_sent = self._is_writing = False
        self._first = len(self._waiting)
        self._before = self.effects.copy(), self._held.copy()
        self.kept.clear()
        self.moment = moment
        moment.begin()

    async def fetch_one(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        row = next(iter(await self.fetch_all(statement, parameters)), None)
        if row is not None and statement.startswith("INSERT INTO sessions "):
            self._held.add(row[0])
        return row

    async def fetch_all(self, statement: str, parameters: Sequence[SqlValue] = ()) -> list[Row]:
        return (await self._send(statement, parameters)).rows

    async def fetch_held(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        return await self.fetch_one(f"{statement} FOR SHARE", parameters)

    async def execute(self, statement: str, parameters: Sequence[SqlValue] = ()) -> None:
        self.hold(*written(statement, parameters))
        self._is_writing = True
        self._waiting.append(_converted(self._pipeline, statement, parameters))

    async def change(self, statement: str, parameters: Sequence[SqlValue] = ()) -> int:
        return (await self._send(statement, parameters)).changed

    async def _send(self, statement: str, parameters: Sequence[SqlValue]) -> StatementResult:
        if not statement.startswith("SELECT"):
            self.hold(*written(statement, parameters))
            self._is_writing = True
        self._waiting.append(_converted(self._pipeline, statement, parameters))
        return (await self.send())[-1]

    @asynccontextmanager
    async def attempt(self) -> AsyncGenerator[None]:
        effects, held, kept = self.effects.copy(), self._held.copy(), len(self.kept)
        start, trips, was_writing = len(self._waiting), self._trips, self._is_writing
        self._depth += 1
        savepoint = f"attempt_{self._depth}"  # one name for all would mean the inner one if its end waits
        self._waiting.append(_control(f"SAVEPOINT {savepoint}"))
        try:
            yield
        except AntiphonError:
            self.effects, self._held = effects, held
            if trips == self._trips:
                del self._waiting[start:]
                self._is_writing = was_writing
            else:
                self._waiting = [_control(f"{verb} SAVEPOINT {savepoint}") for verb in ("ROLLBACK TO", "RELEASE")]
                self._is_writing = False
            await self.store_kept(kept)
            raise
        finally:
            self._depth -= 1
        self._waiting.append(_control(f"RELEASE SAVEPOINT {savepoint}"))

    async def keep(self, write: Callable[[Transaction, *Ts], Coroutine[Any, Any, R]], *arguments: *Ts) -> R:
        self.kept.append((write, arguments))
        return await write(self, *arguments)

    async def store_kept(self, first: int = 0) -> None:
        """Runs anew what the unit keeps, from that one on, since it was undone."""
        for write, arguments in self.kept[first:]:
            await write(self, *arguments)

    def put(self, *statements: str) -> None:
        """Lets statements of the transaction itself wait; an undone unit does not take them along."""
        self._waiting += map(_control, statements)
        self._first = len(self._waiting)

    async def send(self) -> Sequence[StatementResult]:
        """Sends what waits; returns the replies."""
        if not self._waiting:
            return ()
        if self._is_writing:
            self.has_sent, self._is_writing = True, False
        waiting, self._waiting, self._first = self._waiting, [], 0
        self._trips += 1
        replies = await self._pipeline.trip(waiting)
        if self.xid is None:
            self.xid = replies[1].rows[0][0]
        return replies

    def forget(self) -> None:
        """Drops what waits of a unit that is undone, what it asked for, and what it locked with what it wrote."""
        del self._waiting[self._first :]
        before, held = self._before
        self.effects, self._held = before.copy(), held.copy()
        self._is_writing = False

    def lock(self, sessions: Collection[SessionRow]) -> None:
        """Locks the rows of the sessions in their order, with the first statement of the units."""
        if sessions:
            self._held.update(sessions)
            self._waiting.append(_converted(self._pipeline, _LOCK_ROWS, (sorted(sessions),)))
            self._first = len(self._waiting)

    async def lock_named(
        self, ids: Collection[SessionRow], keys: Collection[str], incarnations: Collection[str]
    ) -> list[Row]:
        """Locks the rows of sessions named by id or key; returns their ids and keys. A key without a row needs no lock.

        Of two units that give it a row, the second is undone, and runs again.
        """
        self._waiting.append(_converted(self._pipeline, _LOCK_NAMED, (sorted(ids), sorted(keys), sorted(incarnations))))
        found = (await self.send())[-1].rows
        self._held.update(id for id, _ in found)
        return found

    def hold(self, *sessions: SessionRow) -> None:
        if missing := [session for session in sessions if session not in self._held]:
            raise NeedsSessions(missing)

    def wake(self, session: SessionRow) -> None:
        self.effects.woken.add(session)

    async def dispatch(self, session: SessionRow, asker: Asker) -> None:
        if session not in self.effects.dispatched:
            self.effects.dispatched[session] = None
            await self.execute(*self._defer(session, asker))

    def interrupt(self, session: SessionRow) -> None:
        self.effects.interrupted.add(session)


def _control(statement: str) -> BoundStatement:
    return BoundStatement(statement.encode())


def _converted(pipeline: Pipeline, statement: str, parameters: Sequence[Any]) -> BoundStatement:
    text, is_kept = _numbered(statement), _is_kept(statement)
    try:
        return pipeline.statement(text, parameters, is_kept=is_kept)
    except psycopg.DataError:
        # PostgreSQL's texts cannot contain NUL; display-only text may lose it.
        cleaned = [value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in parameters]
        if cleaned == list(parameters):
            raise
        return pipeline.statement(text, cleaned, is_kept=is_kept)
