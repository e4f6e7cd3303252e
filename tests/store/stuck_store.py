"""Holds the session 1 within a unit, with more units of it behind; says so, and waits to be stopped.

`python -m tests.store.stuck_store URL`; with `reading` behind it, it is in the middle of a statement with a large
answer, which the server can neither finish nor end by its own limits.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from antiphon.domain.actor import Asker
from antiphon.domain.ids import SessionRow
from antiphon.store.database import SqlValue, Transaction
from antiphon.store.moments import Moments
from antiphon.store.postgres.database import PostgresDatabase

OTHERS = 5


def defer_nothing(session: SessionRow, asker: Asker) -> tuple[str, Sequence[SqlValue]]:
    raise AssertionError


def ignore(*changes: object) -> None:
    """What readers would be told."""


async def hold(tx: Transaction, is_held: asyncio.Event) -> None:
    await tx.fetch_one("SELECT 1")
    print("held", flush=True)
    is_held.set()
    await asyncio.Event().wait()


async def read_much(tx: Transaction, is_held: asyncio.Event) -> None:
    await tx.fetch_one("SELECT 1")
    is_held.set()
    print("held", flush=True)
    await tx.fetch_all(
        "SELECT pg_sleep(CASE n WHEN 1 THEN 1 ELSE 0 END), repeat('x', 10000) FROM generate_series(1, 100000) n"
    )


async def look(tx: Transaction) -> None:
    await tx.fetch_one("SELECT 1")


async def main(url: str, unit: Any) -> None:
    async with PostgresDatabase.open(
        url, on_commit=ignore, defer=defer_nothing, moments=Moments(), connections=12
    ) as database:
        one, is_held = SessionRow(1), asyncio.Event()
        first = asyncio.ensure_future(database.run(unit, is_held, sessions=(one,)))
        await is_held.wait()
        # Each in a line of its own: all of them wait for the session at the server.
        others = [database.run(look, sessions=(SessionRow(100 + number), one)) for number in range(OTHERS)]
        await asyncio.gather(first, *others)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], read_much if "reading" in sys.argv else hold))
