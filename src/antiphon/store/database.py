"""The port to the database: units of work, driven whole, in one transaction each."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar, TypeVarTuple

from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import SessionRow

SqlValue = str | int | float | bytes | None
Row = tuple[Any, ...]
R = TypeVar("R")
Ts = TypeVarTuple("Ts")


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

    async def execute(self, statement: str, parameters: Sequence[SqlValue] = ()) -> int:
        """Runs the statement; returns the number of rows it changed."""
        ...

    def wake(self, session: SessionRow) -> None:
        """After COMMIT, readers of the session look at its log again."""
        ...

    async def dispatch(self, session: SessionRow) -> None:
        """The commit brings with it the message "this session has work", at least once."""
        ...


class Database(Protocol):
    """Runs units and queries.

    - `run` returns after COMMIT; what a unit returned is released only then. Waiting units may share one
      COMMIT; a unit that raises never undoes another. A full disk refuses all that share one.
    - `keys` are the sessions that the unit will touch, locked in their order where the backend locks rows.
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
        keys: Sequence[SessionRow] = (),
    ) -> R: ...

    async def read(self, query: Callable[[Query, *Ts], Coroutine[Any, Any, R]], *arguments: *Ts) -> R: ...


class CommitHook(Protocol):
    """Called on both sides of every COMMIT with its number, from 1; tests kill the process there."""

    def __call__(self, number: int, moment: str, units: Sequence[str]) -> None: ...
