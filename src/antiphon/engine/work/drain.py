"""Stopping without losing work: begins nothing new and lets active work end. Contract: first_start 1."""

import anyio

from antiphon.engine.deliveries.deliverer import Deliverer
from antiphon.engine.work.checkpointer import Checkpointer
from antiphon.engine.work.dispatch import Dispatch
from antiphon.engine.work.health import Health
from antiphon.engine.work.worker import Worker


class Drain:
    """The orderly stop of a process. It still accepts messages, which are answered after the next start."""

    def __init__(
        self,
        health: Health,
        dispatch: Dispatch,
        worker: Worker,
        *,
        deliverer: Deliverer | None,
        checkpointer: Checkpointer | None,
        seconds: float,
    ) -> None:
        self._health = health
        self._dispatch = dispatch
        self._worker = worker
        self._deliverer = deliverer
        self._checkpointer = checkpointer
        self._seconds = seconds
        self._has_begun = False

    async def run(self) -> None:
        """Returns when no work is active here any more, at the latest after `seconds`; a second call returns at once.

        Even if cancelled, it hands back the work that has not ended.
        """
        if self._has_begun:
            return
        self._has_begun = True
        self._health.begin_drain()
        with anyio.CancelScope(shield=True):
            self._dispatch.stop()
            deadline = anyio.current_time() + self._seconds
            await self._worker.drain(self._seconds)
            if self._checkpointer is not None:
                await self._checkpointer.drain(max(0.0, deadline - anyio.current_time()))
            if self._deliverer is not None:
                await self._deliverer.drain(max(0.0, deadline - anyio.current_time()))
