"""A standby for queries that read much. It answers once it has replayed what was committed before the question.

So a reader finds there what it has just stored, over whichever process, and decides by no older rights.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import psycopg

from antiphon.domain.errors import Unavailable
from antiphon.store.database import Query, Row
from antiphon.store.postgres.lane import LaneJob
from antiphon.store.postgres.link import Link
from antiphon.store.postgres.pipeline import Pipeline
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

NEAR_SECONDS = 1.0
"""How far it may lag behind, and how long connecting to it may take."""
REST_SECONDS = 10.0
"""How long it is left alone after it failed."""
ANSWER_SECONDS = 20.0
"""How long an answer may take: one that was stopped meanwhile never says so."""
LOOK_SECONDS = 0.01
IDENTITY = """
concat_ws('.', (SELECT system_identifier FROM pg_control_system()), (SELECT timeline_id FROM pg_control_checkpoint()),
  (SELECT oid FROM pg_database WHERE datname = current_database()), current_schema()::regnamespace::oid)
"""
"""Tells which tables are meant. Only on a standby is it the same, after a failover from its next checkpoint on."""
POSITION = f"SELECT pg_current_wal_insert_lsn()::text, {IDENTITY}"
_HAS_REPLAYED = f"SELECT pg_is_in_recovery() AND {IDENTITY} = $2, pg_last_wal_replay_lsn() >= $1::pg_lsn".encode()

Ask = Callable[[Link, Pipeline, LaneJob], Awaitable[Any]]


class Replica:
    """Answers jobs, or leaves them to the primary."""

    def __init__(self, url: str, connections: int) -> None:
        self._url = url
        self._turns = asyncio.Semaphore(connections)
        self._free: list[Link] = []
        self._rests_until = 0.0
        self._reading = Trouble(
            logger, "Reading from the replica", action="replica_failed", means="Searches and lists use the primary."
        )

    @property
    def rests(self) -> bool:
        """Whether it failed a moment ago, so that nobody should wait for it."""
        return time.monotonic() < self._rests_until

    async def answer(self, job: LaneJob, position: Row, ask: Ask) -> bool:
        """Whether the job has its result, from a state at least as new as the position."""
        async with self._turns:
            if self.rests:
                return False
            link = self._free.pop() if self._free else Link(self._url, is_standby=True)
            try:
                async with asyncio.timeout(NEAR_SECONDS):
                    pipeline = await link.open()
                    await _wait_replayed(pipeline, position)
                async with asyncio.timeout(ANSWER_SECONDS):
                    job.result = await ask(link, pipeline, job)
            except psycopg.errors.SerializationFailure:
                return False  # what it read was replaced meanwhile
            except (psycopg.Error, TimeoutError, Unavailable) as error:
                self._rests_until = time.monotonic() + REST_SECONDS
                self._reading.failed(_named(error))
                await link.close()
                return False
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await link.close()
                raise
            finally:
                self._free.append(link)
        self._reading.worked()
        return True

    async def close(self) -> None:
        for link in self._free:
            with suppress(psycopg.Error):
                await link.close()


async def read_position(query: Query) -> Row:
    """How much has been written at the primary, and which server that is."""
    row = await query.fetch_one(POSITION)
    assert row is not None
    return row


async def _wait_replayed(pipeline: Pipeline, position: Row) -> None:
    while True:
        ((is_standby, has_replayed),) = await pipeline.fetch(_HAS_REPLAYED, position)
        if not is_standby:
            raise Unavailable("Replica is no standby of this database: database.replica_url", code="store_unreachable")
        if has_replayed:
            return
        await asyncio.sleep(LOOK_SECONDS)


def _named(error: Exception) -> Exception:
    if isinstance(error, Unavailable):
        return error
    why = str(error).strip()
    if isinstance(error, TimeoutError):
        why = f"does not catch up within {NEAR_SECONDS:g} s, or answer within {ANSWER_SECONDS:g} s"
    return Unavailable(f"Replica cannot be read: {why}", code="store_unreachable")
