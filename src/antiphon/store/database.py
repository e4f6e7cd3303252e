"""The port to the database: units of work, driven whole, in one transaction each."""

from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Protocol, TypeVar, TypeVarTuple

from antiphon.domain.actor import Principal
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import SessionRow
from antiphon.domain.targets import NamedTarget

SqlValue = str | int | float | bytes | None
Row = tuple[Any, ...]
R = TypeVar("R")
Ts = TypeVarTuple("Ts")
Named = SessionRow | NamedTarget
"""A session by its row, or as a caller named it."""


class Query(Protocol):
    """Reads in one consistent snapshot."""

    async def fetch_one(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None: ...

    async def fetch_all(self, statement: str, parameters: Sequence[SqlValue] = ()) -> list[Row]: ...


class Transaction(Query, Protocol):
    """Reads and writes of one unit.

    - A unit awaits nothing but its transaction; any other await is an error and undoes it.
    - A unit may run twice, on any thread: it touches only this, its frozen arguments, and times and ids
      that were drawn before.
    - A *refusal* is returned, so that what it recorded commits; an exception undoes the whole unit.
    """

    async def execute(self, statement: str, parameters: Sequence[SqlValue] = ()) -> None:
        """Runs the statement before anything else is read, and before COMMIT."""
        ...

    async def change(self, statement: str, parameters: Sequence[SqlValue] = ()) -> int:
        """Runs the statement at once; returns the number of rows it changed."""
        ...

    def wake(self, session: SessionRow) -> None:
        """After COMMIT, readers of the session look at its log again."""
        ...

    async def dispatch(self, session: SessionRow, principal: Principal) -> None:
        """The commit brings with it the message "this session has work of that principal", at least once."""
        ...

    def interrupt(self, session: SessionRow) -> None:
        """After COMMIT, whoever works on the session looks at its run again; a hint, in whichever process."""
        ...


class Database(Protocol):
    """Runs units and queries.

    - `run` returns after COMMIT; what a unit returned is released only then. Waiting units may share one
      COMMIT; a unit that raises never undoes another. A full disk refuses all that share one.
    - `sessions` are those that the unit will write to and that it knows of before it reads. Where the backend locks
      rows they are locked first, in their order; what else it writes, it locks by writing.
    - Cancelling the waiter does not cancel the unit.
    - Raises `Unavailable` where the store cannot take it: nothing of the unit is kept then. After an error
      that leaves the state of the disk unknown it stays so until the process starts anew.
    """

    @property
    def failure(self) -> Unavailable | None:
        """Why nothing more is acknowledged; None while the store is well."""
        ...

    async def run(
        self,
        unit: Callable[[Transaction, *Ts], Coroutine[Any, Any, R]],
        *arguments: *Ts,
        sessions: Sequence[Named] = (),
    ) -> R: ...

    async def read(self, query: Callable[[Query, *Ts], Coroutine[Any, Any, R]], *arguments: *Ts) -> R: ...

    async def close(self) -> None:
        """Commits what waits, then lets go. May be called twice."""
        ...


OnCommit = Callable[[Collection[SessionRow], Collection[SessionRow], Collection[SessionRow]], None]
"""Told, on the event loop, which sessions were woken, which have work, and which are interrupted."""


class CommitHook(Protocol):
    """Called on both sides of every COMMIT with its number, from 1; tests kill the process there."""

    def __call__(self, number: int, moment: str, units: Sequence[str]) -> None: ...
