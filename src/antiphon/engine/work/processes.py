"""The processes that share a database: shows that this one lives, and gives up the dead ones.

The sign of life is a growing count. A process that has not seen it grow for some time by its own clock gives the
other process up, so that no two clocks are compared. Contract: runs 8.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import anyio
from msgspec.structs import replace

from antiphon.clock import Clock
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import ProcessId
from antiphon.store import processes as rows
from antiphon.store.database import Database
from antiphon.store.processes import Process
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

BEAT_SECONDS = 1.0
DEAD_SECONDS = 5.0
"""The longest time without a beat. A takeover takes at most this plus one beat interval, plus delivery."""


EndTransactions = Callable[[int, str], Awaitable[int]]
"""Ends what the process of that number on that host has open, and returns how many these were."""


@dataclass(slots=True)
class _Seen:
    beats: int
    since: float


class Processes:
    """This process among all processes on the same database."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        this: Process,
        *,
        end_transactions: EndTransactions | None = None,
        beat_seconds: float = BEAT_SECONDS,
        dead_seconds: float = DEAD_SECONDS,
    ) -> None:
        self._database = database
        self._clock = clock
        self._beat_seconds = beat_seconds
        self._dead_seconds = dead_seconds
        self._end_transactions = end_transactions
        self._seen: dict[ProcessId, _Seen] = {}
        self._warned: set[str] = set()
        self._beating = Trouble(
            logger,
            "Heartbeat",
            action="beat_failed",
            means="Other processes take over the runs of this one if they see no beat for some seconds.",
        )
        self.this = this

    async def register(self) -> None:
        """Announces this process. Warns of others with a different configuration."""
        await self._database.run(rows.insert, self.this, self._clock.now_ms())
        self._compare(await self._database.read(rows.list_all))

    async def note_fingerprint(self, fingerprint: str) -> None:
        """Shows others that the rules of this process have changed."""
        self.this = replace(self.this, fingerprint=fingerprint)
        await self._database.run(rows.set_fingerprint, self.this.id, fingerprint)

    async def unregister(self) -> None:
        """Leaves, so that other processes take over its work at once."""
        await self._database.run(rows.delete, self.this.id)

    async def list(self) -> list[Process]:
        """The living processes, by start."""
        return await self._database.read(rows.list_all)

    async def run(self) -> None:
        """Beats, and gives up processes that do not, until cancelled."""
        looked_at = time.monotonic()
        while True:
            await anyio.sleep(self._beat_seconds)
            now = time.monotonic()
            if now - looked_at > self._dead_seconds / 2:
                # This process slept, perhaps with the others: it knows nothing about them.
                self._seen.clear()
            looked_at = now
            try:
                await self._beat()
                await self._give_up_dead(now)
            except Exception as error:
                self._seen.clear()
                self._beating.failed(error)
            else:
                self._beating.worked()

    async def _beat(self) -> None:
        if not await self._database.run(rows.beat, self.this.id):
            logger.warning("Process was considered dead by others", extra={"action": "process_given_up"})
            await self._database.run(rows.insert, self.this, self._clock.now_ms())

    async def _give_up_dead(self, now: float) -> None:
        living = await self._database.read(rows.list_all)
        self._compare(living)
        known = {process.id for process in living}
        self._seen = {id: seen for id, seen in self._seen.items() if id in known}
        for process in living:
            seen = self._seen.get(process.id)
            if process.id == self.this.id or seen is None or seen.beats != process.beats:
                self._seen[process.id] = _Seen(process.beats, now)
            elif now - seen.since >= self._dead_seconds and await self._database.run(
                rows.delete_unchanged, process.id, process.beats
            ):
                ended = 0 if _has_namesake(process, living) else await self._end(process)
                logger.warning(
                    "Process is dead",
                    extra={
                        "action": "process_dead",
                        "other_process": process.id,
                        "other_host": process.host,
                        "other_pid": process.pid,
                        "transactions_ended": ended,
                    },
                )

    async def _end(self, process: Process) -> int:
        """Ends the transactions of the dead process; those that cannot be ended now end by the server's own limits."""
        with suppress(Unavailable):
            if self._end_transactions is not None:
                return await self._end_transactions(process.pid, process.host)
        return 0

    def _compare(self, living: "list[Process]") -> None:
        for process in living:
            if process.fingerprint != self.this.fingerprint and process.fingerprint not in self._warned:
                self._warned.add(process.fingerprint)
                # A process that runs no agents names none.
                here, there = set(self.this.agents), set(process.agents)
                is_comparable = bool(here and there)
                logger.warning(
                    "Configuration differs from another process's",
                    extra={
                        "action": "configuration_differs",
                        "other_host": process.host,
                        "other_pid": process.pid,
                        "only_here": sorted(here - there) if is_comparable else None,
                        "only_there": sorted(there - here) if is_comparable else None,
                    },
                )


def _has_namesake(process: Process, living: Sequence[Process]) -> bool:
    """Whether another process has its number and its host, as one that was started again in a container has."""
    return any(other.id != process.id and (other.pid, other.host) == (process.pid, process.host) for other in living)
