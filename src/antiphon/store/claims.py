"""Claims: which process works on a row, so that no other one does. Contract: runs 8.

A claim is the values of the columns that name it: those of its row, then what each new claim of the row changes.
A process that shows no sign of life loses its claims, and may come back. So what it writes names its claim, and changes
nothing unless that is still the newest. Taking a row is a write, too: under the claim that was read.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from antiphon.store.database import SqlValue, Transaction

Claim: TypeAlias = tuple[SqlValue, ...]


class Claims:
    """The claims of a table's rows."""

    def __init__(self, table: str, *named: str, held: str = "1 = 1") -> None:
        """A claim has a value of each `named` column; `held` is a condition of the rows that are written under one."""
        self._table = table
        self._named = " AND ".join(f"{column} = ?" for column in named)
        self._columns = ", ".join(named)
        self._is_newest = f"{self._named} AND {held}"
        self._held = held

    async def write(self, tx: Transaction, claim: Claim, columns: Mapping[str, SqlValue]) -> bool:
        """Sets columns of the row; returns whether the claim is the newest."""
        return await self.change(tx, claim, assigned(columns), *columns.values())

    async def change(self, tx: Transaction, claim: Claim, assignments: str, *values: SqlValue) -> bool:
        """The same with assignments in SQL."""
        statement = f"UPDATE {self._table} SET {assignments} WHERE {self._is_newest}"
        return await tx.change(statement, (*values, *claim)) == 1

    async def write_all(
        self, tx: Transaction, claims: Collection[Claim], columns: Mapping[str, SqlValue]
    ) -> set[Claim]:
        """Sets columns of the rows of all these claims, in one statement; returns those that are the newest."""
        if not claims:
            return set()
        is_one = " OR ".join([f"({self._named})"] * len(claims))
        rows = await tx.fetch_all(
            f"UPDATE {self._table} SET {assigned(columns)} WHERE {self._held} AND ({is_one}) RETURNING {self._columns}",
            (*columns.values(), *(value for claim in claims for value in claim)),
        )
        return {tuple(row) for row in rows}

    async def delete(self, tx: Transaction, claim: Claim) -> bool:
        """Deletes the row; returns whether the claim is the newest."""
        return await tx.change(f"DELETE FROM {self._table} WHERE {self._is_newest}", claim) == 1

    async def hand_back(self, tx: Transaction, claim: Claim) -> None:
        """Releases the row in an orderly stop: the attempt does not count as crashed; another process takes the row."""
        await self.change(tx, claim, "process = NULL, attempt = attempt - 1")


def assigned(columns: Iterable[str]) -> str:
    """Assignments of a value to each column."""
    return ", ".join(f"{column} = ?" for column in columns)


def is_left(process: str) -> str:
    """The condition that no living process has the claim; `process` is the column that names the one that took it."""
    return f"NOT EXISTS (SELECT 1 FROM processes p WHERE p.id = {process})"
