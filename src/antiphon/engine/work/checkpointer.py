"""Carries out checkpoints beside the runs, in places of their own. Contract: checkpoints 1.

When each is due stands in rows. Every process that runs agents looks for due ones; the unit that begins one gives it
to one process, and what a dead process had begun is taken over.
"""

import asyncio
import logging

import anyio
from anyio.abc import TaskGroup

from antiphon.clock import Clock
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import Ids, ProcessId, SessionId
from antiphon.engine.checkpoints.introspector import BegunCheckpoint, Introspector, LookedBack
from antiphon.engine.checkpoints.reading import BegunCheckpointReader
from antiphon.engine.checkpoints.steps import (
    BeginCheckpoint,
    FinishCheckpoint,
    begin_checkpoint,
    finish_checkpoint,
    hand_back_checkpoint,
)
from antiphon.engine.ledger.fence import Fenced
from antiphon.engine.rules import Rules
from antiphon.feed.notifier import Notifier
from antiphon.request_ids import executing_run, new_run_id
from antiphon.store.checkpoints import CHECKPOINT_DUE, DueCheckpoint, list_due, next_due
from antiphon.store.database import Database
from antiphon.trouble import Setbacks, Trouble

logger = logging.getLogger(__name__)

AT_ONCE = 2
"""Checkpoints of one process at the same time."""
LOOK_SECONDS = 30.0
"""How soon work is found that other processes scheduled, or left, at the latest."""
LONGEST_SECONDS = 300.0
"""How long a checkpoint may take."""
SHORTEST_PAUSE_SECONDS = 0.2
RETRY_SECONDS = 1.0
TOOK_TOO_LONG = LookedBack(error="The checkpoint exceeded its time limit.", code="run_timeout")
INTERNAL = LookedBack(error="Antiphon had an internal error; see its log.", code="internal_error")


class Checkpointer:
    """`run` must be running in a task; all of its work belongs to that task."""

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        introspector: Introspector,
        rules: Rules,
        *,
        process: ProcessId,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._introspector = introspector
        self._rules = rules
        self._process = process
        self._clock = clock
        self._ids = ids
        self._at_work: dict[SessionId, anyio.CancelScope] = {}
        self._woken = asyncio.Event()
        self._idle = anyio.Event()
        self._is_draining = False
        self._looking = Trouble(
            logger, "Looking for checkpoints", action="checkpoints_failed", means="Checkpoints wait."
        )
        self._setbacks = Setbacks(
            logger, "Beginning or storing a checkpoint", action="checkpoint_broken", means="It waits; others go on."
        )

    async def run(self) -> None:
        """Runs until cancelled."""
        if not self._rules.checkpoints.is_enabled:
            return
        unsubscribe = self._notifier.subscribe(CHECKPOINT_DUE, self._woken.set)
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    self._woken.clear()
                    seconds = await self._look(tasks)
                    with anyio.move_on_after(seconds):
                        await self._woken.wait()
        finally:
            unsubscribe()

    def look(self) -> None:
        """Looks at once for what is due."""
        self._woken.set()

    async def drain(self, seconds: float) -> None:
        """Begins no more, gives those at work that time, then hands them back."""
        self._is_draining = True
        self._woken.set()
        with anyio.move_on_after(seconds):
            await self._wait_idle()
        for scope in tuple(self._at_work.values()):
            scope.cancel()
        with anyio.move_on_after(LOOK_SECONDS):
            await self._wait_idle()

    async def _wait_idle(self) -> None:
        while self._at_work:
            self._idle = anyio.Event()
            await self._idle.wait()

    async def _look(self, tasks: TaskGroup) -> float:
        """Begins what is due, as far as there are places; returns the seconds until the next look."""
        try:
            room = AT_ONCE - len(self._at_work)
            if self._is_draining or room <= 0:
                return LOOK_SECONDS
            limit = AT_ONCE + 2 * room + len(self._setbacks)
            due = await self._database.read(list_due, self._clock.now_ms(), limit)
            for each in due:
                if each.incarnation in self._at_work or self._setbacks.rests(each.incarnation):
                    continue
                if len(self._at_work) < AT_ONCE:
                    with self._setbacks.attempt(each.incarnation, session=each.session, incarnation=each.incarnation):
                        await self._begin(tasks, each)
            due_ms = await self._database.read(next_due)
        except Exception as error:
            self._looking.failed(error)
            return RETRY_SECONDS
        self._looking.worked()
        left = LOOK_SECONDS if due_ms is None else (due_ms - self._clock.now_ms()) / 1000
        return min(max(left, RETRY_SECONDS if self._setbacks else SHORTEST_PAUSE_SECONDS), LOOK_SECONDS)

    async def _begin(self, tasks: TaskGroup, due: DueCheckpoint) -> None:
        command = BeginCheckpoint(
            due=due,
            process=self._process,
            rules=self._rules,
            run_id=new_run_id(self._ids),
            at_ms=self._clock.now_ms(),
        )
        begun = await self._database.run(begin_checkpoint, command, sessions=(due.session,))
        if begun is not None:
            scope = self._at_work[begun.incarnation] = anyio.CancelScope()
            tasks.start_soon(self._carry_out, begun, scope)

    async def _carry_out(self, begun: BegunCheckpoint, scope: anyio.CancelScope) -> None:
        looked: LookedBack | None = None
        try:
            with scope, executing_run(begun.run):
                looked = await self._look_back(begun)
            with anyio.CancelScope(shield=True):
                await self._settle(begun, looked)
        except Fenced:
            logger.warning("Checkpoint was taken over", extra={"action": "checkpoint_lost", "run_id": begun.run})
        except Exception as error:  # a bug of ours: it is taken over, like one whose process died
            self._setbacks.failed(begun.incarnation, error, run_id=begun.run, session=begun.session.row)
        finally:
            del self._at_work[begun.incarnation]
            self._idle.set()
            self._woken.set()

    async def _look_back(self, begun: BegunCheckpoint) -> LookedBack:
        reader = BegunCheckpointReader(self._database, begun, self._rules.person_caps, self._clock)
        try:
            with anyio.move_on_after(LONGEST_SECONDS):
                return await self._introspector.look_back(begun, reader)
            return TOOK_TOO_LONG
        except Fenced:
            raise
        except Unavailable as error:
            self._looking.failed(error)
            return LookedBack(error=error.message, code=error.code)
        except Exception:  # a bug of ours: the checkpoint fails, and the range stays
            logger.exception("Checkpoint failed", extra={"action": "checkpoint_failed", "run_id": begun.run})
            return INTERNAL

    async def _settle(self, begun: BegunCheckpoint, looked: LookedBack | None) -> None:
        """Stores the end; a checkpoint that was stopped goes to another process."""
        session = begun.session.row
        while True:
            try:
                if looked is None:
                    await self._database.run(hand_back_checkpoint, begun.fence, sessions=(session,))
                else:
                    finish = FinishCheckpoint(begun=begun, looked=looked, rules=self._rules, at_ms=self._clock.now_ms())
                    await self._database.run(finish_checkpoint, finish, sessions=(session,))
                return
            except Unavailable as error:
                self._looking.failed(error)
                if self._is_draining or self._database.failure is not None:
                    return  # taken over at the next start, like one whose process died
                await anyio.sleep(RETRY_SECONDS)
