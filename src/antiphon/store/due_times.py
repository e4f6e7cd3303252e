"""Stored times that something waits for, and pulling them in after the clock went back."""

from msgspec import Struct

from antiphon.domain.ids import SessionRow
from antiphon.store.database import Query, Transaction


class DueTime(Struct, frozen=True, kw_only=True):
    """A column whose times lie at most `longest` ahead."""

    table: str
    column: str
    longest: str = "0"
    """In milliseconds, as SQL. Zero for a beginning, which never lies ahead."""
    rows: str
    """The rows that wait, as SQL."""
    session: str | None = None
    """The column of the row's session; None for rows that belong to none."""
    end: str | None = None
    """A time that is counted from this one, and moves with it."""

    @property
    def is_beginning(self) -> bool:
        """Whether it lies ahead only if the clock went back."""
        return self.longest == "0"

    @property
    def is_far(self) -> str:
        """The rows whose time lies too far ahead; its value is the time now."""
        return f"{self.rows} AND {self.column} > ? + {self.longest}"


async def list_far(query: Query, due: DueTime, now_ms: int) -> list[SessionRow | None]:
    """Sessions with times that lie too far ahead; None stands for the rows without a session."""
    found = await query.fetch_all(
        f"SELECT DISTINCT {due.session or 'NULL'} FROM {due.table} WHERE {due.is_far}", (now_ms,)
    )
    return [None if row[0] is None else SessionRow(row[0]) for row in found]


async def pull_in(tx: Transaction, due: DueTime, session: SessionRow | None, now_ms: int) -> int:
    """Makes the session's times of that kind lie at most their longest wait ahead; returns how many it changed."""
    assignments, values = [f"{due.column} = ? + {due.longest}"], [now_ms]
    if due.end is not None:
        assignments.append(f"{due.end} = {due.end} - ({due.column} - ? - {due.longest})")
        values.append(now_ms)
    condition, values = due.is_far, [*values, now_ms]
    if session is not None:
        condition, values = f"{condition} AND {due.session} = ?", [*values, session]
    return await tx.change(f"UPDATE {due.table} SET {', '.join(assignments)} WHERE {condition}", values)
