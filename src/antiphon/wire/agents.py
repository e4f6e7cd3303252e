"""Agents."""

from collections.abc import Sequence

from antiphon.wire.encoding import Shape


class AgentShape(Shape, frozen=True, kw_only=True):
    """A configured agent."""

    id: str
    name: str | None = None
    model: str
    """Of its sessions that name none."""
    is_default: bool | None = None
    """True for the agent of `main`."""


class AgentList(Shape, frozen=True, kw_only=True):
    """All agents with which one may open sessions."""

    count: int
    agents: Sequence[AgentShape]
