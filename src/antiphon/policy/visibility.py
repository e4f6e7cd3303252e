"""How far sessions see others, as configured. Contract: visibility 1 to 3, 5."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from antiphon.domain.ids import AgentId
from antiphon.policy.acts import Act
from antiphon.policy.patterns import matches_any


class Visibility(StrEnum):
    """How far a session sees; each value includes the one before."""

    SELF = "self"
    TREE = "tree"
    AGENT = "agent"
    ALL = "all"

    def narrowed(self, other: "Visibility") -> "Visibility":
        """The smaller of the two."""
        return min(self, other, key=_ORDER.index)


_ORDER = list(Visibility)


class AgentToAgent(Struct, frozen=True, kw_only=True):
    """Whether sessions of different agents may reach each other. Contract: visibility 3."""

    enabled: bool = False
    allow: tuple[str, ...] = ()
    """Patterns of agent ids, `*` for any part; empty allows all."""

    def allows(self, one: AgentId, other: AgentId) -> bool:
        """Whether both agents are allowed, in either direction."""
        return self.enabled and self.admits(one) and self.admits(other)

    def admits(self, agent_id: AgentId) -> bool:
        return not self.allow or matches_any(agent_id, self.allow)


class VisibilityRules(Struct, frozen=True, kw_only=True):
    """The configuration of session tools."""

    visibility: Visibility = Visibility.TREE
    sandbox_visibility: Visibility = Visibility.TREE
    """The most that a sandboxed session sees."""
    agent_to_agent: AgentToAgent = AgentToAgent()
    narrowed: Mapping[AgentId, Mapping[Act, Visibility | None]] = field(
        default_factory=dict[AgentId, Mapping[Act, Visibility | None]]
    )
    """The most that an agent sees in an act; None switches the act off."""

    def of(self, agent_id: AgentId, act: Act, *, is_sandboxed: bool) -> Visibility | None:
        """How far sessions of the agent see in the act; None if it is switched off. Contract: visibility 2, 5."""
        visibility = self.visibility.narrowed(self.sandbox_visibility) if is_sandboxed else self.visibility
        narrowed = self.narrowed.get(agent_id, {})
        if act not in narrowed:
            return visibility
        limit = narrowed[act]
        return None if limit is None else visibility.narrowed(limit)
