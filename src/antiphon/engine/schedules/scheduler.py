"""The scheduler: fires the tasks whose slots have come. Any number of processes may have one. Contract: tasks 1.

What is due are rows. Each is fired in its own unit, which looks again, so that a slot fires once whoever finds it.
"""

import logging
from datetime import timedelta
from functools import partial

import anyio

from antiphon.clock import Clock
from antiphon.domain.ids import TaskId
from antiphon.domain.keys import cron_key
from antiphon.domain.targets import NamedTarget
from antiphon.engine.ledger.due_loop import LOOK_SECONDS, DueLoop, seconds_until
from antiphon.engine.rules import Rules
from antiphon.engine.schedules.firing import fire_due, set_right
from antiphon.feed.notifier import Notifier
from antiphon.store import tasks
from antiphon.store.database import Database
from antiphon.store.tasks import TASKS_DUE, Due
from antiphon.trouble import Setbacks, Trouble

logger = logging.getLogger(__name__)

BATCH = 100
AT_ONCE = 20
PAUSE_SECONDS = 0.02
"""After so many tasks that are due together, the others fire at this distance, so that people's turns go between."""
AHEAD = timedelta(seconds=10)
"""Slots that were set while the clock was further ahead are set anew. A smaller step delays a task by as much."""
PATIENCE = timedelta(minutes=10)
"""How long a slot waits for a process that knows its agent."""


class Scheduler(DueLoop[None]):
    """Without tasks that are due it reads one row every half minute."""

    def __init__(self, database: Database, notifier: Notifier, rules: Rules, *, clock: Clock) -> None:
        super().__init__(
            partial(notifier.subscribe, TASKS_DUE),
            looking=Trouble(logger, "Firing tasks", action="scheduler_failed", means="Tasks wait."),
            setbacks=Setbacks(
                logger, "Task", action="task_unreadable", means="That task does not fire now; others do."
            ),
            pause=LOOK_SECONDS,
        )
        self._database = database
        self._rules = rules
        self._clock = clock
        self._looked_ms: int | None = None
        """When it looked last; None before the first time."""

    async def settle_due(self) -> float:
        """Fires the tasks. One that cannot be read, or whose zone this machine lacks, does not hold up the others."""
        now_ms = self._clock.now_ms()
        if self._looked_ms is None or now_ms < self._looked_ms:
            await self._set_right(now_ms)
        self._looked_ms = now_ms
        after: Due | None = None
        fired = 0
        while True:
            found = await self._database.read(tasks.list_due, now_ms, after, BATCH)
            for due in found:
                if self._is_ours(due, now_ms) and not self._setbacks.rests(due.id):
                    with self._setbacks.attempt(due.id, task_id=due.id):
                        await self.fire(due.id)
                    fired += 1
                    if fired > AT_ONCE:
                        await anyio.sleep(PAUSE_SECONDS)
            if len(found) < BATCH:
                break
            after = found[-1]
        return seconds_until(await self._database.read(tasks.next_due, now_ms), self._clock)

    async def fire(self, id: TaskId) -> bool:
        """Does what is due of the task now; False if nothing is."""
        return await self._database.run(fire_due, id, self._rules, sessions=(NamedTarget(cron_key(id), None),))

    async def _set_right(self, now_ms: int) -> None:
        """Brings back the slots of tasks that fired while the clock was ahead."""
        for id in await self._database.read(tasks.list_fired_after, now_ms + AHEAD // timedelta(milliseconds=1)):
            with self._setbacks.attempt(id, task_id=id):
                await self._database.run(set_right, id)

    def _is_ours(self, due: Due, now_ms: int) -> bool:
        """Whether this process knows the agent, or no other one has fired the task for a while."""
        return due.agent_id in self._rules.agents or now_ms - due.next_at_ms > PATIENCE / timedelta(milliseconds=1)
