"""What is done from time to time: hiding sessions that nobody has used for long. Contract: sessions 2."""

import logging
from datetime import timedelta

import anyio

from antiphon.clock import Clock
from antiphon.domain.errors import Unavailable
from antiphon.store import sessions as rows
from antiphon.store.database import Database

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 3600.0
BATCH = 1_000


class Upkeep:
    def __init__(self, database: Database, clock: Clock, *, stale_after: timedelta | None) -> None:
        self._database = database
        self._clock = clock
        self._stale_after = stale_after

    async def run(self) -> None:
        """At once, then every hour, until cancelled."""
        while True:
            try:
                await self.hide_stale()
            except Unavailable as error:
                logger.warning("Upkeep failed", extra={"action": "upkeep_failed", "code": error.code})
            await anyio.sleep(INTERVAL_SECONDS)

    async def hide_stale(self) -> int:
        """Makes idle sessions without an interaction for so long `inactive`; returns how many."""
        if self._stale_after is None:
            return 0
        before_ms = self._clock.now_ms() - int(self._stale_after.total_seconds() * 1000)
        hidden = 0
        while changed := await self._database.run(rows.hide_idle_before, before_ms, BATCH):
            hidden += changed
        return hidden
