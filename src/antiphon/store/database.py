"""The port to the database: units of work, each run completely in one transaction."""

from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol, TypeVar, TypeVarTuple

from antiphon.domain.actor import Asker
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import SessionRow
from antiphon.domain.targets import NamedTarget

SqlValue = str | int | float | bytes | None
Row = tuple[Any, ...]
R = TypeVar("R")
Ts = TypeVarTuple("Ts")
Named = SessionRow | NamedTarget
"""A session by its row, or as a caller named it."""


class NeedsSessions(Exception):
    """The unit writes to sessions that it does not hold. It is undone, and runs again with them among its own."""

    def __init__(self, sessions: Sequence[Named]) -> None:
        super().__init__(f"Sessions are not held: {', '.join(map(str, sessions))}")
        self.sessions = tuple(sessions)


class Query(Protocol):
    """Reads in one consistent snapshot."""

    @property
    def now_ms(self) -> int:
        """When the unit was submitted, in milliseconds since 1970; the same if it runs again."""
        ...

    @property
    def now(self) -> datetime:
        """The same moment, aware and in UTC."""
        ...

    async def fetch_one(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None: ...

    async def fetch_all(self, statement: str, parameters: Sequence[SqlValue] = ()) -> list[Row]: ...


class Transaction(Query, Protocol):
    """Reads and writes of one unit.

    - A unit awaits only its transaction; any other await is an error and undoes the unit.
    - A unit may run twice, on any thread: it uses only this transaction and its frozen arguments. Its moment, and the
      ids that it draws here, are the same each time.
    - A unit writes only to sessions that it holds: it was run with them, makes them, or asks for them with `hold`.
    - A unit that raises is undone. What must be stored all the same is given to `keep`.
    """

    @property
    def request_id(self) -> str | None:
        """The request in which the unit was submitted."""
        ...

    @property
    def process(self) -> str:
        """The process that runs the unit."""
        ...

    def new_id(self, kind: str) -> str:
        """`<kind>_<31 hexadecimal digits>`, unique; sorts by time."""
        ...

    def random_hex(self, digits: int) -> str:
        """So many hexadecimal digits that cannot be guessed."""
        ...

    async def fetch_held(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        """Like `fetch_one`, for a row of one table, which no other unit changes until this one has committed."""
        ...

    async def execute(self, statement: str, parameters: Sequence[SqlValue] = ()) -> None:
        """Runs the statement before the next read, and before COMMIT."""
        ...

    async def change(self, statement: str, parameters: Sequence[SqlValue] = ()) -> int:
        """Runs the statement at once; returns the number of rows it changed."""
        ...

    def hold(self, *sessions: SessionRow) -> None:
        """Says that the unit writes to these sessions too, before it reads what it goes by.

        Where the backend locks rows and one of them is not locked, this raises `NeedsSessions`: the unit is undone, and
        runs again with all of them locked before it reads.
        """
        ...

    def wake(self, session: SessionRow) -> None:
        """After COMMIT, readers of the session read its log again."""
        ...

    async def dispatch(self, session: SessionRow, asker: Asker) -> None:
        """With the commit, sends the message "this session has work of that asker" at least once."""
        ...

    def interrupt(self, session: SessionRow) -> None:
        """After COMMIT, the worker of the session checks its run again; a hint, to any process."""
        ...

    def attempt(self) -> AbstractAsyncContextManager[None]:
        """Undoes what was written within it if that raises an `AntiphonError`, which goes on to who catches it.

        For the few units that go on after a refusal.
        """
        ...

    async def keep(self, write: "Callable[[Transaction, *Ts], Coroutine[Any, Any, R]]", *arguments: *Ts) -> R:
        """Runs the write now, and once more where an `AntiphonError` undoes what was written by now."""
        ...


class Database(Protocol):
    """Runs units and queries.

    - `run` returns after COMMIT and releases the unit's result only then. Waiting units may share one
      COMMIT; a unit that raises never undoes another. A full disk makes all units that share a COMMIT fail.
    - `sessions` are those that the unit will write to, as far as they are known before it reads. Backends with row
      locks lock them first, in the order of their rows, so that no two units wait for each other. A unit that needs
      another session is undone and runs again with it. Units that name the same session first may share a transaction.
    - Cancelling the waiter does not cancel the unit.
    - Raises `Unavailable` if the store cannot store the unit: then nothing of it is kept. After an error
      that leaves the state of the disk unknown, it stays unavailable until the process restarts.
    """

    @property
    def failure(self) -> Unavailable | None:
        """Why no more commits are acknowledged; None while the store works."""
        ...

    @property
    def trouble(self) -> Unavailable | None:
        """Why the last unit was not stored, if that may pass, as a full disk does; None once a unit was stored."""
        ...

    async def run(
        self,
        unit: Callable[[Transaction, *Ts], Coroutine[Any, Any, R]],
        *arguments: *Ts,
        sessions: Sequence[Named] = (),
    ) -> R: ...

    async def read(self, query: Callable[[Query, *Ts], Coroutine[Any, Any, R]], *arguments: *Ts) -> R: ...

    async def close(self) -> None:
        """Commits the waiting units, then closes. May be called twice."""
        ...


Reading = TypeVar("Reading", bound=Callable[..., Coroutine[Any, Any, Any]])
READS_MUCH = set[Callable[..., Coroutine[Any, Any, Any]]]()


def reads_much(reading: Reading) -> Reading:
    """Marks a query that may read much, as a search or a list does.

    A replica may answer it, which then has all that was committed before. No run and no unit waits for it.
    """
    READS_MUCH.add(reading)
    return reading


Kept = tuple[Callable[..., Coroutine[Any, Any, object]], tuple[Any, ...]]
"""A write that was given to `keep`, with its arguments."""

OnCommit = Callable[[Collection[SessionRow], Collection[SessionRow], Collection[SessionRow]], None]
"""Called on the event loop with the sessions that were woken, those that have work, and those that are interrupted."""


class CommitHook(Protocol):
    """Called before and after every COMMIT with its number, from 1; tests kill the process there."""

    def __call__(self, number: int, moment: str, units: Sequence[str]) -> None: ...
