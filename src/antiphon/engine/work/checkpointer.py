"""Carries out checkpoints beside the runs, in places of their own. Contract: checkpoints 1.

When each is due stands in rows. Every process that runs agents looks for due ones; the unit that begins one gives it
to one process, and what a dead process had begun is taken over.
"""

import logging
from functools import partial

import anyio

from antiphon.clock import Clock
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import ProcessId
from antiphon.engine.checkpoints.introspector import BegunCheckpoint, Introspector, LookedBack
from antiphon.engine.checkpoints.reading import BegunCheckpointReader
from antiphon.engine.checkpoints.steps import (
    BeginCheckpoint,
    FinishCheckpoint,
    begin_checkpoint,
    finish_checkpoint,
    hand_back_checkpoint,
)
from antiphon.engine.ledger.due_loop import LOOK_SECONDS, DueLoop, seconds_until
from antiphon.engine.ledger.fence import Fenced
from antiphon.engine.rules import Rules
from antiphon.feed.notifier import Notifier
from antiphon.request_ids import executing_run
from antiphon.store.checkpoints import CHECKPOINT_DUE, DueCheckpoint, list_due, next_due
from antiphon.store.database import Database
from antiphon.trouble import Setbacks, Trouble

logger = logging.getLogger(__name__)

AT_ONCE = 2
"""Checkpoints of one process at the same time."""
LONGEST_SECONDS = 300.0
"""How long a checkpoint may take."""
SHORTEST_PAUSE_SECONDS = 0.2
RETRY_SECONDS = 1.0
TOOK_TOO_LONG = LookedBack(error="The checkpoint exceeded its time limit.", code="run_timeout")
INTERNAL = LookedBack(error="Antiphon had an internal error; see its log.", code="internal_error")


class Checkpointer(DueLoop[anyio.CancelScope]):
    """Beside each at work stands what ends its looking back."""

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        introspector: Introspector,
        rules: Rules,
        *,
        process: ProcessId,
        clock: Clock,
    ) -> None:
        super().__init__(
            partial(notifier.subscribe, CHECKPOINT_DUE),
            looking=Trouble(logger, "Looking for checkpoints", action="checkpoints_failed", means="Checkpoints wait."),
            setbacks=Setbacks(
                logger,
                "Beginning or storing a checkpoint",
                action="checkpoint_broken",
                means="It waits; others go on.",
            ),
            pause=RETRY_SECONDS,
        )
        self._database = database
        self._introspector = introspector
        self._rules = rules
        self._process = process
        self._clock = clock

    async def run(self) -> None:
        if self._rules.checkpoints.is_enabled:
            await super().run()

    async def drain(self, seconds: float) -> None:
        """Begins no more, gives those at work that time, then hands them back."""
        await super().drain(seconds)
        for scope in tuple(self._at_work.values()):
            scope.cancel()
        await super().drain(LOOK_SECONDS)

    async def settle_due(self) -> float:
        """Begins what is due, as far as there are places."""
        room = AT_ONCE - len(self._at_work)
        if room <= 0:
            return LOOK_SECONDS
        limit = AT_ONCE + 2 * room + len(self._setbacks)
        for each in await self._database.read(list_due, self._clock.now_ms(), limit):
            if self._may_begin(each.incarnation) and len(self._at_work) < AT_ONCE:
                with self._setbacks.attempt(each.incarnation, session=each.session, incarnation=each.incarnation):
                    await self._begin(each)
        due_ms = await self._database.read(next_due)
        return seconds_until(due_ms, self._clock, RETRY_SECONDS if self._setbacks else SHORTEST_PAUSE_SECONDS)

    async def _begin(self, due: DueCheckpoint) -> None:
        command = BeginCheckpoint(
            due=due,
            process=self._process,
            rules=self._rules,
        )
        begun = await self._database.run(begin_checkpoint, command, sessions=(due.session,))
        if begun is not None:
            scope = anyio.CancelScope()
            self._start(begun.incarnation, scope, self._carry_out, begun, scope)

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
                    finish = FinishCheckpoint(begun=begun, looked=looked, rules=self._rules)
                    await self._database.run(finish_checkpoint, finish, sessions=(session,))
                self._looking.worked()
                return
            except Unavailable as error:
                self._looking.failed(error)
                if self._is_stopped or self._database.failure is not None:
                    return  # taken over at the next start, like one whose process died
                await anyio.sleep(RETRY_SECONDS)
