"""What is due: children to archive or delete, parked runs out of time, requests to expire, sealed requests.

Contract: spawn 4, 8, approvals 1, flow 4.

The times are rows. Every process on the database looks for due ones and settles each in its own unit, which checks
again, so that two processes that find the same one settle it once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVarTuple

from antiphon.clock import Clock
from antiphon.domain.exchange import Exchange
from antiphon.domain.ids import RunId, SessionRow
from antiphon.domain.session import Session, SessionStatus
from antiphon.domain.spawn import Cleanup
from antiphon.domain.thread_bindings import said_at_end
from antiphon.engine.access.bindings import put_off, unbind
from antiphon.engine.children.clock_steps import LATER_MS, ClockSteps
from antiphon.engine.deliveries.outbox import enqueue_notice
from antiphon.engine.exchanges.sealed import open_sealed
from antiphon.engine.ledger.due_loop import LOOK_SECONDS, DueLoop, seconds_until
from antiphon.engine.rules import Rules
from antiphon.engine.runs.decisions import expire_approval
from antiphon.engine.runs.ends import end_parked_run
from antiphon.engine.sessions.deletion import bury_session, remove_workspace
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.feed.notifier import Notifier
from antiphon.store import approvals, exchanges, spawns, thread_bindings
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.approvals import DueApproval
from antiphon.store.codec import milliseconds
from antiphon.store.database import Database, Query, SqlValue, Transaction
from antiphon.store.spawns import DUE, Parked
from antiphon.store.thread_bindings import ThreadBinding
from antiphon.trouble import Setbacks, Trouble

logger = logging.getLogger(__name__)

Ts = TypeVarTuple("Ts")

BATCH = 100
PAUSE_SECONDS = 1.0
"""Between looks while something that is due fails."""


class DueChildren(DueLoop[None]):
    def __init__(
        self, database: Database, notifier: Notifier, workspaces: Workspaces, rules: Rules, *, clock: Clock
    ) -> None:
        super().__init__(
            partial(notifier.subscribe, DUE),
            looking=Trouble(
                logger,
                "Settling what is due",
                action="timers_failed",
                means="Archiving, deadlines of children and requests that expire wait.",
            ),
            setbacks=Setbacks(
                logger, "What is due", action="timer_failed", means="That waits and is tried again; all else goes on."
            ),
            pause=LOOK_SECONDS,
        )
        self._database = database
        self._workspaces = workspaces
        self._rules = rules
        self._notifier = notifier
        self._clock = clock
        self._steps = ClockSteps(database, clock, rules.checkpoints)
        self._turn = asyncio.Lock()
        self._may_be_sealed = True
        """Whether a request was sealed since the last look, or before this process began."""

    async def run(self) -> None:
        ignore_sealed = self._notifier.subscribe(exchanges.SEALED, self._on_sealed)
        try:
            await super().run()
        finally:
            ignore_sealed()

    def _on_sealed(self) -> None:
        self._may_be_sealed = True
        self.wake()

    async def settle_due(self) -> float:
        """One pass follows the other: after a step of the clock, none may go on with the time of before."""
        async with self._turn:
            return await self._settle_due()

    async def _settle_due(self) -> float:
        await self._steps.look()
        if self._may_be_sealed:
            await self._open_sealed()
        while await self._settle_some():
            pass
        due_ms = await self._database.read(_next_due)
        return seconds_until(due_ms, self._clock, PAUSE_SECONDS if self._setbacks else 0.0)

    async def _settle_some(self) -> bool:
        """Settles what is due, as far as it was listed; whether there may be more."""
        now_ms, limit = self._clock.now_ms(), BATCH + len(self._setbacks)
        children = await self._database.read(spawns.list_due, now_ms, limit)
        settled = [await self._try(child, child, self._put_away, child, now_ms) for child in children]
        overdue = await self._database.read(spawns.list_overdue, now_ms, limit)
        settled += [
            await self._try(parked.run, parked.session, self._end_overdue, parked, now_ms) for parked in overdue
        ]
        expired = await self._database.read(approvals.list_due, now_ms, limit)
        settled += [await self._try(due.id, due.session, self._expire, due, now_ms) for due in expired]
        unused = await self._database.read(thread_bindings.list_due, now_ms, limit)
        settled += [await self._try(str(each.name), each.child, self._end_binding, each) for each in unused]
        return any(settled) and any(len(found) == limit for found in (children, overdue, expired, unused))

    async def _try(
        self,
        item: SessionRow | RunId | str,
        session: SessionRow,
        settle: Callable[[*Ts], Awaitable[None]],
        *arguments: *Ts,
    ) -> bool:
        """Settles one thing; False if it failed, now or lately, by an error that is its own."""
        if self._setbacks.rests(item):
            return False
        with self._setbacks.attempt(item, session=session, due=str(item)):
            await settle(*arguments)
            return True
        return False

    async def _put_away(self, child: SessionRow, now_ms: int) -> None:
        deleted = await self._database.run(archive, child, sessions=(child,))
        if deleted is not None:
            await remove_workspace(self._workspaces, deleted)

    async def _end_binding(self, binding: ThreadBinding) -> None:
        await self._database.run(end_binding, binding, sessions=(binding.child,))

    async def _end_overdue(self, parked: Parked, now_ms: int) -> None:
        await self._database.run(end_overdue, parked.run, sessions=(parked.session,))

    async def _expire(self, due: DueApproval, now_ms: int) -> None:
        await self._database.run(expire_approval, due.id, sessions=(due.session,))

    async def _open_sealed(self) -> None:
        """Puts sealed requests into the logs of their targets. Contract: flow 4."""
        self._may_be_sealed = False
        is_done = False
        try:
            while sealed := await self._database.read(exchanges.list_sealed, BATCH + len(self._setbacks)):
                opened = [await self._try(each.id, SessionRow(each.target), self._open, each) for each in sealed]
                if not any(opened):
                    return  # all of them rest
            is_done = True
        finally:
            self._may_be_sealed |= not is_done

    async def _open(self, sealed: Exchange) -> None:
        sides = (SessionRow(sealed.requester), SessionRow(sealed.target))
        await self._database.run(open_sealed, sealed.id, self._rules, sessions=sides)


async def _next_due(query: Query) -> int | None:
    found = (await spawns.next_due(query), await approvals.next_due(query), await thread_bindings.next_due(query))
    return min((due for due in found if due is not None), default=None)


async def archive(tx: Transaction, child: SessionRow) -> Session | None:
    """Archives or deletes the child, unless it is busy or awaited: then later. Returns the child if it was deleted."""
    before = await spawns.find(tx, child)
    await spawns.set_due(tx, child, None)
    spawn = await spawns.find(tx, child)  # again: from here on no wait can postpone it any more
    session = await rows.find_by_row(tx, child)
    if before is None or before.due_at is None or spawn is None or session is None:
        return None
    if await ledger.is_busy(tx, child) or await spawns.is_expecting(tx, child):
        await spawns.set_due(tx, child, tx.now_ms + LATER_MS)
        return None
    if spawn.kept_until is not None and milliseconds(spawn.kept_until) > tx.now_ms:
        await spawns.set_due(tx, child, milliseconds(spawn.kept_until))
        return None
    if spawn.cleanup is Cleanup.DELETE:
        await bury_session(tx, session)
        return session
    if session.status is SessionStatus.IDLE:
        changes: dict[str, SqlValue] = {"status": SessionStatus.INACTIVE.value}
        await rows.update(tx, child, changes)
        tx.wake(child)
    return None


async def end_binding(tx: Transaction, due: ThreadBinding) -> None:
    """Unbinds a thread whose time is over, and says so there; later, if its sub-agent works. Contract: spawn 4."""
    binding = await thread_bindings.find(tx, due.name)
    if binding is None or binding.ends_ms is None or binding.ends_ms > tx.now_ms:
        return
    if await ledger.is_busy(tx, binding.child):
        await put_off(tx, binding)
        return
    if not await unbind(tx, binding):
        return
    channel, account, _, thread = binding.name
    name = f"unbound {channel} {account} {binding.chat} {thread} {binding.bound_ms}"
    await enqueue_notice(tx, binding.place, said_at_end(binding.limits, binding.used_ms, tx.now_ms), name=name)


async def end_overdue(tx: Transaction, run_id: RunId) -> None:
    """Ends the work of a parked run whose time is over."""
    run = await ledger.find(tx, run_id)
    if run is not None and run.is_parked and run.deadline is not None and run.deadline.timestamp() * 1000 <= tx.now_ms:
        await end_parked_run(tx, run_id)
