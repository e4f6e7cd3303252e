"""The session that calls a tool. Contract: answers 3, tools 1.

The caller comes from the run or from the edge that authenticated the client, never from a tool's arguments.
"""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import Conflict
from antiphon.domain.ids import AgentId, RunId, SessionRow, TaskId
from antiphon.domain.run import Run
from antiphon.domain.session import Session
from antiphon.engine.ledger.fence import Fence, Fenced
from antiphon.store import runs as ledger
from antiphon.store.database import Query, Transaction
from antiphon.store.origins import renamed
from antiphon.store.people import hold_merges


class CallingRun(Protocol):
    """The claimed run that calls a tool, as tools and use cases see it."""

    @property
    def run(self) -> Run: ...

    @property
    def fence(self) -> Fence: ...

    @property
    def made_of(self) -> Classification:
        """The run's context, of which the arguments of its calls are made. Contract: flow 2."""
        ...

    def count_call(self, tool: str) -> int:
        """Notes that the run calls the tool; returns how often it has, in this claim and before."""
        ...

    async def note_waiting(self, run_id: RunId, timeout: timedelta) -> None:
        """Records in the ledger which run this one waits for, so that a cycle of waits is found."""
        ...

    async def wait_run(self, run_id: RunId, timeout: timedelta) -> Run | None:
        """The other run once it has ended, None on time-out. Meanwhile this run holds no slot."""
        ...

    async def wait_released(self, run_id: RunId, timeout: timedelta, session: SessionRow | None = None) -> Run | None:
        """Like `wait_run`, when the ledger already records the wait."""
        ...

    async def wait_several_released(
        self, run_ids: Sequence[RunId], sessions: Collection[SessionRow], timeout: timedelta, *, for_all: bool
    ) -> None:
        """Waits for several runs: for one of them, or for all."""
        ...


class Caller(Struct, frozen=True, kw_only=True):
    """The caller of a tool: a run of a session, or an outside client that acts as that session."""

    session: SessionRow
    agent_id: AgentId
    principal: Principal
    """The principal whose rights the call has."""
    call_id: str
    """Stays the same when the call is repeated, after a crash or by its `Idempotency-Key`."""
    run: CallingRun | None
    """None for a call from outside, which takes no turn of the session."""
    release: str | None = None
    """The hash of what an owner has released, if the call waited for that. Contract: flow 11."""
    files: str = ""
    """The files that somebody has approved for the call; empty if nobody was asked about any."""
    carried: Classification = PUBLIC
    """What its arguments hold that no prompt of its run does: values of children in quarantine. Contract: flow 10."""
    referring: frozenset[str] = frozenset()
    """The names of the arguments that hold such values."""

    @property
    def task(self) -> TaskId | None:
        """The task behind the call; None if no task caused it."""
        return None if self.run is None else self.run.run.task

    @property
    def is_sandboxed(self) -> bool:
        """Whether a sandboxed session caused the call; does not cover the caller's own session."""
        return self.run is not None and self.run.run.is_sandboxed


def context_of(caller: Caller, session: Session) -> Classification:
    """What the caller's words are made of: its run's context; from outside a run, all that its session holds.

    `session` is the caller's own, as the deciding unit read it. Contract: flow 2.
    """
    return (session.taint if caller.run is None else caller.run.made_of).join(caller.carried)


async def hold_outside(tx: Transaction, caller: Caller) -> Caller:
    """The caller as it is now: one from outside may have been merged, with all its calls, since it was found.

    Until this unit commits, it is merged with nobody else.
    """
    if caller.run is not None:
        return caller
    old = caller.principal
    new = await hold_merges(tx, old)
    if new == old:
        return caller
    return replace(caller, principal=new, call_id=renamed(caller.call_id, old=str(old), new=str(new)))


async def find_origin(query: Query, caller: Caller) -> Run | None:
    """The caller's run in the ledger; None for a call from outside. Raises `Fenced` if another worker took it over."""
    if caller.run is None:
        return None
    run = await ledger.find(query, caller.run.run.id)
    if run is None or run.fence != caller.run.fence.number or not run.status.is_active:
        raise Fenced
    return run


def refuse_called_off(origin: Run | None) -> None:
    """A run that was cancelled begins nothing more, nor one whose conversation was reset. Contract: runs 5."""
    if origin is not None and origin.is_cancel_requested:
        raise Conflict("This run is being cancelled.", code="cancelled")
