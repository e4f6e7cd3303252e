"""Units hold the sessions that they write to: what a statement tells of it, and the check that tests on SQLite do."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from antiphon.domain.ids import SessionRow
from antiphon.store.database import Database, SqlValue, Transaction
from antiphon.store.locked import written
from antiphon.store.moments import Moments
from antiphon.store.sqlite import SqliteDatabase

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("statement", "parameters", "found"),
    [
        ("UPDATE sessions SET a = ? WHERE id = ?", ("x", 7), [7]),
        ("UPDATE sessions SET a = a + ? WHERE id = ? RETURNING last_seq", (1, 7), [7]),
        ("UPDATE sessions SET a = ? WHERE a > ? AND id IN (?, ?)", (1, 2, 7, 8), [7, 8]),
        ("INSERT INTO events (session, seq) VALUES (?, ?), (?, ?)", (7, 1, 8, 2), [7, 8]),
        ("INSERT INTO runs (id, session) VALUES (?, ?)", ("r", 7), [7]),
        ("DELETE FROM events WHERE session = ? AND seq < ?", (7, 5), [7]),
        ("UPDATE participants SET b = b + ? WHERE session = ? AND principal = ?", (1, 7, "p"), [7]),
        ("UPDATE runs SET a = ? WHERE id = ?", ("x", "r"), []),
        ("INSERT INTO people (id) VALUES (?)", (7,), []),
        ("SELECT id FROM sessions WHERE id = ?", (7,), []),
    ],
)
def test_a_statement_tells_to_which_sessions_it_writes(
    statement: str, parameters: tuple[SqlValue, ...], found: list[int]
) -> None:
    assert list(written(statement, parameters)) == found


def test_a_statement_that_does_not_tell_which_sessions_it_changes_is_refused() -> None:
    with pytest.raises(AssertionError, match="does not tell"):
        written("UPDATE sessions SET parent = NULL WHERE parent = ?", (7,))


PRODUCT = """
async def run_in(database, unit, *arguments, **options):
    return await database.run(unit, *arguments, **options)
"""
"""A caller that looks like one of the product, whose units are checked."""


def ignore(*changes: object) -> None:
    """What readers would be told."""


async def rename(tx: Transaction, *held: SessionRow) -> None:
    tx.hold(*held)
    await tx.execute("UPDATE sessions SET label = ? WHERE id = ?", ("x", 7))


async def test_units_on_sqlite_may_write_only_to_sessions_that_they_hold(tmp_path: Path) -> None:
    product: dict[str, object] = {"__name__": "antiphon.engine.example"}
    exec(PRODUCT, product)
    run_in = cast("Callable[..., Awaitable[None]]", product["run_in"])
    database: Database = await SqliteDatabase.open(tmp_path / "a.db", on_commit=ignore, moments=Moments())
    try:
        await run_in(database, rename, sessions=(SessionRow(7),))
        await run_in(database, rename, SessionRow(7))
        with pytest.raises(AssertionError, match=r"'rename' does not hold sessions \[7\]"):
            await run_in(database, rename, sessions=(SessionRow(8),))
        await database.run(rename)
    finally:
        await database.close()
