"""The JSON of tools that others wrote, and of what an owner confirmed of them. Contract: flow 10."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from antiphon.domain.agent import Effect
from antiphon.wire.encoding import Shape


class ReviewState(StrEnum):
    CONFIRMED = "confirmed"
    UNREVIEWED = "unreviewed"
    CHANGED = "changed"
    """Unreviewed, and a tool of that name was confirmed before."""


class ForeignToolShape(Shape, frozen=True, kw_only=True):
    name: str
    """As its source calls it."""
    offered_as: str
    """As agents call it."""
    sha256: str
    """Of its source, name, description, schema and hints."""
    description: str
    parameters: dict[str, Any]
    """The JSON Schema of its arguments."""
    state: ReviewState
    effects: Sequence[Effect]
    """What it counts as now."""
    proposed: Sequence[Effect]
    """What its name and its server's hints suggest."""
    declared: bool = False
    """Whether the settings say its effects, so that no review changes them."""
    agents: Sequence[str]
    """The agents to which it is offered."""


class ToolSourceShape(Shape, frozen=True, kw_only=True):
    source: str
    """`mcp:<server>` or `package:<package>`."""
    unreviewed: int
    """How many of its tools no owner has confirmed as they are now."""
    unavailable_for: Sequence[str] = ()
    """Agents for which the server does not answer now, so that its tools are unknown."""
    tools: Sequence[ForeignToolShape]


class ToolSourceList(Shape, frozen=True, kw_only=True):
    count: int
    sources: Sequence[ToolSourceShape]


class WithdrawnReviews(Shape, frozen=True, kw_only=True):
    source: str
    withdrawn: int
    """How many reviews were withdrawn, also of tools that are not offered any more."""
