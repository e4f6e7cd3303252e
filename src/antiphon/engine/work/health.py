"""Whether the process can do its work."""

import logging
import os
from collections.abc import Mapping
from types import MappingProxyType

import anyio
from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import SessionRow
from antiphon.engine.work.processes import Processes
from antiphon.engine.work.stalls import StallMeter, Stalls
from antiphon.store import sessions as rows
from antiphon.store.checkup import probe
from antiphon.store.database import Database
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

CHECK_SECONDS = 3.0
LOOK_SECONDS = 5.0


class Readiness(Struct, frozen=True, kw_only=True):
    """Status of a ready process and of the processes beside it."""

    workers: int
    """Number of processes that run agents, including this one."""
    is_configured_alike: bool
    """Whether all processes on the database have the same configuration."""
    stalls: Stalls
    """How long this process's event loop stood still in the last hour."""
    broken_channels: Mapping[str, str]
    """Why channels of this process do not work, by name."""
    held_up: str | None = None
    """What some units wait for, while others are stored."""


def check_descriptors() -> None:
    """Raises `Unavailable` if the process or the machine can open no more files."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        raise Unavailable(
            f"Process cannot open another file ({error.strerror}): connections, commands and models may fail. It "
            "recovers once some are closed. Raise its limit of open files (`ulimit -n`, LimitNOFILE).",
            code="no_descriptors",
        ) from error


class Health:
    def __init__(
        self,
        database: Database,
        processes: Processes | None,
        *,
        broken_channels: Mapping[str, str] = MappingProxyType({}),
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._database = database
        self._processes = processes
        self._broken_channels = broken_channels
        self._look_seconds = look_seconds
        self.meter = StallMeter()
        self._is_draining = False
        self._opening = Trouble(
            logger, "Opening files", action="no_descriptors", means="Connections, commands and models may fail."
        )
        self._probing = Trouble(
            logger,
            "Looking whether anything can be stored",
            action="probe_failed",
            means="It is noticed late.",
        )

    async def run(self) -> None:
        """Notices, also if nobody asks, that no more files can be opened, and that something can be stored again."""
        while True:
            await anyio.sleep(self._look_seconds)
            try:
                check_descriptors()
            except Unavailable as error:
                self._opening.failed(error)
            else:
                self._opening.worked()
            try:
                await self._check_storing()
            except Unavailable:
                pass  # the store says itself what it cannot do
            except Exception as error:
                self._probing.failed(error)
            else:
                self._probing.worked()

    def begin_drain(self) -> None:
        """From now on the process takes no new work."""
        self._is_draining = True

    async def check(self) -> Readiness:
        """Raises `Unavailable` if messages cannot be accepted or stored."""
        if self._is_draining:
            raise Unavailable("Gateway is stopping. Try again in a moment.", code="draining")
        if self._database.failure is not None:
            raise self._database.failure
        check_descriptors()
        try:
            with anyio.fail_after(CHECK_SECONDS):
                held_up = await self._check_storing()
                ready = await self._look()
        except TimeoutError as error:
            raise self._database.trouble or Unavailable(
                f"Database did not answer within {CHECK_SECONDS:g} s.", code="store_unreachable"
            ) from error
        return ready if held_up is None else replace(ready, held_up=held_up.message)

    async def _check_storing(self) -> Unavailable | None:
        """Writes only if the last unit was not stored: a supervisor that sends nothing more would never know.

        Returns what some units wait for, if others can be stored.
        """
        trouble = self._database.trouble
        if trouble is not None and trouble.code == "store_corrupt":
            raise trouble
        if trouble is not None:
            await self._database.run(probe)
        return trouble if trouble is not None and trouble.code == "store_busy" else None

    async def _look(self) -> Readiness:
        await self._database.read(rows.find_bounds, SessionRow(0))
        stalls = self.meter.last_hour()
        if self._processes is None:
            return Readiness(workers=1, is_configured_alike=True, stalls=stalls, broken_channels=self._broken_channels)
        living = await self._processes.list()
        return Readiness(
            workers=sum(bool(process.agents) for process in living),
            is_configured_alike=len({process.fingerprint for process in living}) <= 1,
            stalls=stalls,
            broken_channels=self._broken_channels,
        )
