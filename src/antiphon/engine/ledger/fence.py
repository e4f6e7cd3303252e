"""A worker's right to write for a run: a claim gives it, and a newer claim takes it away. Contract: runs 8."""

from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

from msgspec import Struct

from antiphon.domain.ids import AgentId, ProcessId, RunId, SessionRow
from antiphon.domain.run import Run


class Claimant(Struct, frozen=True, kw_only=True):
    """The process that claims runs."""

    process: ProcessId
    time_limits: Mapping[AgentId, timedelta | None]
    """The limit that each agent's settings name for its runs; zero for none."""
    lacking: frozenset[AgentId] = frozenset()
    """Agents whose runners it lacks."""
    default_time: timedelta | None = None
    """The limit of runs for which neither their agent, their spawn nor their task names one; None for none."""
    is_default_named: bool = False
    """Whether the settings name that limit. One that nobody named begins anew when a run is taken over."""


class Fence(NamedTuple):
    """A worker's right to write for a run: the values that name its claim."""

    run_id: RunId
    number: int


class Fenced(Exception):
    """Another worker took the run over, or it ended: this worker can no longer write to it."""


def sessions_of(run: Run) -> tuple[SessionRow, ...]:
    """The sessions that the end of the run writes to: its own, and before it the partner that it answers.

    The ends of one requester's children share transactions.
    """
    own = SessionRow(run.session)
    return (own,) if run.partner is None else (run.partner, own)
