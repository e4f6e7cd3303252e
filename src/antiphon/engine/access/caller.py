"""The session that calls a tool. Contract: answers 3, tools 1.

The caller comes from the run or from the edge that has authenticated somebody, never from a tool's arguments.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from antiphon.domain.actor import Principal
from antiphon.domain.ids import AgentId, RunId, SessionRow
from antiphon.domain.run import Run
from antiphon.engine.ledger.fence import Fence, Fenced
from antiphon.store import runs as ledger
from antiphon.store.database import Query


class CallingRun(Protocol):
    """The claimed run in which a tool is called, as far as tools and use cases need it."""

    @property
    def run(self) -> Run: ...

    @property
    def fence(self) -> Fence: ...

    async def note_waiting(self, run_id: RunId, timeout: timedelta) -> None:
        """Says in the ledger for which run this one waits, so that a cycle of waits is seen."""
        ...

    async def wait_run(self, run_id: RunId, timeout: timedelta) -> Run | None:
        """The other run once it has ended, None on time-out; meanwhile this run takes no slot."""
        ...

    async def wait_released(self, run_id: RunId, timeout: timedelta, session: SessionRow | None = None) -> Run | None:
        """The same where the ledger knows already that this run waits."""
        ...

    async def wait_several_released(
        self, run_ids: Sequence[RunId], sessions: Collection[SessionRow], timeout: timedelta, *, for_all: bool
    ) -> None:
        """The same for several runs: for one of them, or for all."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls a tool: a run of a session, or somebody outside who acts as that session."""

    session: SessionRow
    agent_id: AgentId
    principal: Principal
    """Whose rights the call has."""
    call_id: str
    """The same when the call is repeated, after a crash or by its `Idempotency-Key`."""
    run: CallingRun | None
    """None for a call from outside, which takes no turn of the session."""

    @property
    def is_sandboxed(self) -> bool:
        """Whether a sandboxed session caused the call, apart from the caller's own."""
        return self.run is not None and self.run.run.is_sandboxed


async def find_origin(query: Query, caller: Caller) -> Run | None:
    """The caller's run as the ledger has it; None for a call from outside. Raises `Fenced` if it is another's now."""
    if caller.run is None:
        return None
    run = await ledger.find(query, caller.run.run.id)
    if run is None or run.fence != caller.run.fence.number or not run.status.is_active:
        raise Fenced
    return run
