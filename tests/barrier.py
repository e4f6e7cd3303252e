"""A barrier before COMMIT, so that a test decides in which order units of a database see each other."""

from collections.abc import Generator, Sized
from contextlib import contextmanager

import anyio
import psycopg

from antiphon.config.config import DatabaseSection
from antiphon.store.database import Transaction
from tests.waiting import SECONDS

LOCK = 48_007


class Barrier:
    """Holds up units on PostgreSQL before their COMMIT; on SQLite one unit runs at a time, and none is held up."""

    def __init__(self, connection: psycopg.Connection | None) -> None:
        self._connection = connection
        if connection is not None:
            connection.execute("SELECT pg_advisory_lock(%s)", (LOCK,))

    async def pass_by(self, tx: Transaction) -> None:
        if self._connection is not None:
            await tx.fetch_one("SELECT pg_advisory_xact_lock(?)", (LOCK,))

    async def wait_for(self, count: int, *, or_once: Sized = ()) -> None:
        """Until so many units wait for a lock, or the list holds something."""
        if self._connection is None:
            return
        asked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        with anyio.fail_after(SECONDS):
            while not or_once and self._connection.execute(asked).fetchall()[0][0] < count:
                await anyio.sleep(0.01)

    def open(self) -> None:
        if self._connection is not None:
            self._connection.execute("SELECT pg_advisory_unlock(%s)", (LOCK,))


@contextmanager
def barrier_in(section: DatabaseSection) -> Generator[Barrier]:
    if section.url is None:
        yield Barrier(None)
        return
    with psycopg.connect(section.url.get_secret_value(), autocommit=True) as connection:
        yield Barrier(connection)
