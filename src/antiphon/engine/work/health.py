"""Whether the process can do its work."""

from dataclasses import dataclass

import anyio

from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import SessionRow
from antiphon.engine.work.processes import Processes
from antiphon.engine.work.stalls import StallMeter, Stalls
from antiphon.store import sessions as rows
from antiphon.store.database import Database

CHECK_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Status of a ready process and of the processes beside it."""

    workers: int
    """Number of processes that run agents, including this one."""
    is_configured_alike: bool
    """Whether all processes on the database have the same configuration."""
    stalls: Stalls
    """How long this process's event loop stood still in the last hour."""


class Health:
    def __init__(self, database: Database, processes: Processes | None) -> None:
        self._database = database
        self._processes = processes
        self.meter = StallMeter()
        self._is_draining = False

    def begin_drain(self) -> None:
        """From now on the process takes no new work."""
        self._is_draining = True

    async def check(self) -> Readiness:
        """Raises `Unavailable` if messages cannot be accepted or stored."""
        if self._is_draining:
            raise Unavailable("Gateway is stopping. Try again in a moment.", code="draining")
        if self._database.failure is not None:
            raise self._database.failure
        try:
            with anyio.fail_after(CHECK_SECONDS):
                return await self._look()
        except TimeoutError as error:
            raise Unavailable(
                f"Database did not answer within {CHECK_SECONDS:g} s.", code="store_unreachable"
            ) from error

    async def _look(self) -> Readiness:
        await self._database.read(rows.find_bounds, SessionRow(0))
        stalls = self.meter.last_hour()
        if self._processes is None:
            return Readiness(workers=1, is_configured_alike=True, stalls=stalls)
        living = await self._processes.list()
        return Readiness(
            workers=sum(bool(process.agents) for process in living),
            is_configured_alike=len({process.fingerprint for process in living}) <= 1,
            stalls=stalls,
        )
