"""Regular upkeep: hides stale sessions, forgets what is old, removes files that deletions left behind.

Contract: sessions 2, 7, 8.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import anyio
from anyio import to_thread

from antiphon.clock import Clock
from antiphon.domain.ids import SessionRow
from antiphon.engine.sessions.deletion import remove_workspace
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.store import arrivals, calls, deliveries, link_undos, quarantine
from antiphon.store import events as log
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Transaction
from antiphon.trouble import Setbacks, Trouble

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 3600.0
BATCH = 1_000
FILES_BATCH = 20
"""Of texts, each with up to 20 MiB in its files."""


class Upkeep:
    def __init__(
        self,
        database: Database,
        workspaces: Workspaces,
        clock: Clock,
        *,
        stale_after: timedelta | None,
        retention: timedelta | None,
        also: Sequence[Callable[[], Awaitable[object]]] = (),
    ) -> None:
        """`also` are steps of others, which are done before its own."""
        self._database = database
        self._workspaces = workspaces
        self._clock = clock
        self._stale_after = stale_after
        self._retention = retention
        self._also = also
        self._upkeep = Trouble(
            logger, "Upkeep", action="upkeep_failed", means="Old events and files are removed an hour later."
        )
        self._setbacks = Setbacks(
            logger,
            "Upkeep of a session",
            action="session_upkeep_failed",
            means="What is old there stays.",
        )

    async def run(self) -> None:
        """Runs at once, then every hour, until cancelled."""
        while True:
            steps = (
                *self._also,
                self.hide_stale,
                self.prune,
                self.remove_workspaces,
                self.forget_arrivals,
                self.forget_calls,
                self.forget_link_undos,
                self.forget_quarantined,
                self.forget_files,
            )
            has_failed = [not await self._try(step) for step in steps]
            if not any(has_failed):
                self._upkeep.worked()
            await anyio.sleep(INTERVAL_SECONDS)

    async def _try(self, step: Callable[[], Awaitable[object]]) -> bool:
        try:
            await step()
        except Exception as error:
            self._upkeep.failed(error, step=step.__name__)
            return False
        return True

    async def hide_stale(self) -> int:
        """Sets idle sessions to `inactive` after `stale_after` without an interaction; returns how many."""
        if self._stale_after is None:
            return 0
        before_ms = self._clock.now_ms() - int(self._stale_after.total_seconds() * 1000)
        hidden = 0
        while idle := await self._database.read(rows.list_idle_before, before_ms, BATCH):
            hidden += await self._database.run(rows.hide_idle, idle, before_ms, sessions=idle)
        return hidden

    async def prune(self) -> int:
        """Deletes events older than the retention, except those that an unfinished run needs; returns how many."""
        if self._retention is None:
            return 0
        before_ms = self._clock.now_ms() - int(self._retention.total_seconds() * 1000)
        pruned, after = 0, SessionRow(0)
        while page := await self._database.read(rows.list_logs, after, BATCH):
            for session, first_seq in page:
                with self._setbacks.attempt(session, session=session):
                    pruned += await self._prune(session, first_seq, before_ms)
            after = page[-1][0]
        return pruned

    async def _prune(self, session: SessionRow, first_seq: int, before_ms: int) -> int:
        end = first_seq
        while new_first := await self._database.run(prune_log, session, before_ms, end + BATCH, sessions=(session,)):
            end = new_first
        return end - first_seq

    async def remove_workspaces(self) -> int:
        """Removes the workspaces of deleted sessions; returns how many.

        They are left over if a crash interrupted the deletion, or if a process with another home deleted the session.
        """
        found = await to_thread.run_sync(self._workspaces.list_all)
        sessions = sorted(set(found.values()))
        removed = 0
        for start in range(0, len(sessions), BATCH):
            for left in await self._database.read(rows.list_deleted, sessions[start : start + BATCH]):
                with self._setbacks.attempt(left.row, session=left.row):
                    if await to_thread.run_sync(self._workspaces.list_of, left.agent_id, left.row, left.created_at):
                        await remove_workspace(self._workspaces, left)
                        removed += 1
        return removed

    async def forget_arrivals(self) -> None:
        """Forgets what came in on channels so long ago that no platform repeats it."""
        before_ms = self._clock.now_ms() - int(arrivals.KEPT.total_seconds() * 1000)
        await self._database.run(arrivals.delete_before, before_ms)

    async def forget_calls(self) -> None:
        """Forgets calls from outside a run that are too old to be repeated."""
        before_ms = self._clock.now_ms() - int(calls.KEPT.total_seconds() * 1000)
        while await self._database.run(calls.delete_before, before_ms, BATCH) == BATCH:
            pass

    async def forget_link_undos(self) -> None:
        """Forgets what undoes links of accounts that are too old to be undone."""
        await self._database.run(link_undos.delete_expired, self._clock.now_ms())

    async def forget_quarantined(self) -> None:
        """Forgets values of children in quarantine that no run can use any more."""
        before_ms = self._clock.now_ms() - int(quarantine.KEPT.total_seconds() * 1000)
        await self._database.run(quarantine.delete_before, before_ms)

    async def forget_files(self) -> None:
        """Forgets what is in files that were not sent so long ago that nobody will try again."""
        before_ms = self._clock.now_ms() - int(deliveries.FILES_KEPT.total_seconds() * 1000)
        while await self._database.run(deliveries.delete_files_before, before_ms, FILES_BATCH):
            pass


async def prune_log(tx: Transaction, session: SessionRow, before_ms: int, below: int) -> int | None:
    """Deletes the oldest events below `below`. Returns the log's new lowest `seq`, None if nothing was deleted."""
    bounds = await rows.find_bounds(tx, session)
    if bounds is None:
        return None
    needed = await ledger.oldest_unfinished_seq(tx, session)
    end = min(below, bounds.last_seq, bounds.last_seq if needed is None else needed)
    first_seq = await log.first_seq_since(tx, session, before_ms, below=end)
    if first_seq <= bounds.first_seq:
        return None
    await log.delete_below(tx, session, first_seq)
    tx.wake(session)
    return first_seq
