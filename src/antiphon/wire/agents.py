"""Agents."""

from collections.abc import Sequence
from typing import Final

from antiphon.domain.agent import Agent, AgentRuntime
from antiphon.wire.encoding import Shape

RUNNER_MISSING: Final = "runner_missing"
"""The problem of an agent whose runner is not there: its runs wait."""


class AgentShape(Shape, frozen=True, kw_only=True):
    """An agent."""

    id: str
    name: str | None = None
    model: str | None = None
    """Of its sessions that name none."""
    is_default: bool | None = None
    """True for the agent of `main`."""
    runtime: AgentRuntime | None = None
    """What carries out its runs; missing for Antiphon's own loop."""
    runner: str | None = None
    """The name of its runner."""
    unattended: bool | None = None
    """True for a harness that may act without asking."""
    problem: str | None = None
    """`runner_missing`: its runs stay queued until a process has its runner."""


class AgentList(Shape, frozen=True, kw_only=True):
    """All agents with which one may open sessions."""

    count: int
    agents: Sequence[AgentShape]


class ForgottenAgent(Shape, frozen=True, kw_only=True):
    """An agent that is not known any more."""

    id: str
    runs: int
    """How many of its runs end now, as `unknown_agent`."""


def agent(agent: Agent, *, is_default: bool, is_missing: bool) -> AgentShape:
    return AgentShape(
        id=agent.id,
        name=agent.name,
        model=agent.model,
        is_default=is_default or None,
        runtime=None if agent.runtime is AgentRuntime.LOOP else agent.runtime,
        runner=agent.runner,
        unattended=agent.is_unattended or None,
        problem=RUNNER_MISSING if is_missing else None,
    )
