"""A worker's right to write for a run: what a claim gives, and what an older claim has lost. Contract: runs 8."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from antiphon.domain.ids import AgentId, ProcessId, RunId, SessionRow
from antiphon.domain.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """Who claims runs."""

    process: ProcessId
    time_limits: Mapping[AgentId, timedelta | None]
    """How long a run may take, for each agent that the process knows."""


@dataclass(frozen=True, slots=True)
class Fence:
    """A worker's right to write for a run, from its claim."""

    run_id: RunId
    number: int


class Fenced(Exception):
    """The run was taken over or ended: this worker's writes count no more."""


def sessions_of(run: Run) -> tuple[SessionRow, ...]:
    """Those that the end of the run writes to: its own, and the one that it answers."""
    own = SessionRow(run.session)
    return (own,) if run.partner is None else (own, run.partner)
