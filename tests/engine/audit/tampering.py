"""Changes of a stored home by somebody who writes to its database without the gateway, one at a time."""

import random
import sqlite3
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple

from antiphon.domain.audit import Checked
from antiphon.engine.audit.check import check_home
from antiphon.store.database import Query
from antiphon.store.moments import Moments
from antiphon.store.sqlite import _SqliteTransaction  # pyright: ignore[reportPrivateUsage] reads what is not committed

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class Uncommitted:
    """Reads within the transaction of the one who tampers, so that each change can be undone."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._query = _SqliteTransaction(connection, Moments().draw())

    async def read(self, query: Callable[[Query, *Ts], Coroutine[Any, Any, R]], *arguments: *Ts) -> R:
        return await query(self._query, *arguments)


async def check(connection: sqlite3.Connection) -> Checked:
    return await check_home(Uncommitted(connection))


class Tamperer:
    """Draws changes, each of which makes the home another one."""

    def __init__(
        self, connection: sqlite3.Connection, chance: random.Random, tables: dict[str, tuple[str, str]]
    ) -> None:
        """`tables` names the columns of each table's chain and number."""
        self._connection = connection
        self._chance = chance
        self._tables = tables

    def tamper(self) -> str:
        """Changes one value, or removes, swaps or cuts off rows; returns what it did."""
        ways = (self._change, self._change, self._remove, self._swap, self._cut_off)
        while True:
            try:
                return self._chance.choice(ways)(self._chance.choice(list(self._tables)))
            except sqlite3.IntegrityError:  # the database allows no such change
                continue

    def _rows(self, table: str) -> list[tuple[Any, int]]:
        chain, number = self._tables[table]
        return self._connection.execute(f"SELECT {chain}, {number} FROM {table}").fetchall()

    def _change(self, table: str) -> str:
        key = self._chance.choice(self._rows(table))
        columns = [row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")]
        column = self._chance.choice(columns)
        where = self._where(table)
        (before,) = self._connection.execute(f"SELECT {column} FROM {table} WHERE {where}", key).fetchone()
        after = self._other(before)
        self._connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (after, *key))
        return f"{table} {key}: {column} {before!r} -> {after!r}"

    def _other(self, value: Any) -> Any:
        match value:
            case None:
                return self._chance.choice(("x", "person:other"))
            case int():
                return value + self._chance.choice((1, -1, 1_000))
            case bytes():
                at = self._chance.randrange(len(value))
                return value[:at] + bytes([value[at] ^ 1 << self._chance.randrange(8)]) + value[at + 1 :]
            case "":
                return "x"
            case _:
                at = self._chance.randrange(len(value))
                return value[:at] + ("a" if value[at] != "a" else "b") + value[at + 1 :]

    def _remove(self, table: str) -> str:
        key = self._chance.choice(self._rows(table))
        self._connection.execute(f"DELETE FROM {table} WHERE {self._where(table)}", key)
        return f"{table} {key} removed"

    def _swap(self, table: str) -> str:
        _, number = self._tables[table]
        one = self._chance.choice(self._rows(table))
        others = [row for row in self._rows(table) if row[0] == one[0] and row != one]
        if not others:
            return self._remove(table)
        other, where = self._chance.choice(others), self._where(table)
        update = f"UPDATE {table} SET {number} = ? WHERE {where}"
        self._connection.execute(update, (-1, *one))
        self._connection.execute(update, (one[1], *other))
        self._connection.execute(update, (other[1], one[0], -1))
        return f"{table} {one} swapped with {other}"

    def _cut_off(self, table: str) -> str:
        chain, number = self._tables[table]
        key = self._chance.choice(self._rows(table))
        self._connection.execute(f"DELETE FROM {table} WHERE {chain} = ? AND {number} >= ?", key)
        return f"{table} cut off at {key}"

    def _where(self, table: str) -> str:
        chain, number = self._tables[table]
        return f"{chain} = ? AND {number} = ?"
