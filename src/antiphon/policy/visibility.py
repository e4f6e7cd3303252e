"""Which sessions a session may list, read, ask the status of, and send to. Contract: visibility 1 to 6, flow 3.

A *scope* is what policy makes of a caller and an act, before any target is known. `decide` judges one target by it;
lists turn the same scope into SQL (`store/scopes`), so that they are filtered before limit and count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from antiphon.domain.classification import Classification
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.policy.decision import ALLOW, Decision, Deny
from antiphon.policy.patterns import matches_any


class Visibility(StrEnum):
    """How far a session sees; each includes the one before."""

    SELF = "self"
    TREE = "tree"
    AGENT = "agent"
    ALL = "all"

    def narrowed(self, other: "Visibility") -> "Visibility":
        """The smaller of the two."""
        return min(self, other, key=_ORDER.index)


_ORDER = list(Visibility)


class Act(StrEnum):
    LIST = "list"
    READ = "read"
    SEND = "send"
    STATUS = "status"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentToAgent:
    """Whether sessions of different agents may meet. Contract: visibility 3."""

    enabled: bool = False
    allow: tuple[str, ...] = ()
    """Patterns of agent ids, `*` for any part; none allows all."""

    def allows(self, one: AgentId, other: AgentId) -> bool:
        """Whether both agents are allowed, in either direction."""
        return self.enabled and self.admits(one) and self.admits(other)

    def admits(self, agent_id: AgentId) -> bool:
        return not self.allow or matches_any(agent_id, self.allow)


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibilityRules:
    """What the configuration says of session tools."""

    visibility: Visibility = Visibility.TREE
    sandbox_visibility: Visibility = Visibility.TREE
    """What a sandboxed session sees at most."""
    agent_to_agent: AgentToAgent = AgentToAgent()
    narrowed: Mapping[AgentId, Mapping[Act, Visibility | None]] = field(
        default_factory=dict[AgentId, Mapping[Act, Visibility | None]]
    )
    """What single agents see at most in an act; None switches the act off."""

    def of(self, agent_id: AgentId, act: Act, *, is_sandboxed: bool) -> Visibility | None:
        """How far sessions of the agent see in the act; None where it is switched off. Contract: visibility 2, 5."""
        visibility = self.visibility.narrowed(self.sandbox_visibility) if is_sandboxed else self.visibility
        narrowed = self.narrowed.get(agent_id, {})
        if act not in narrowed:
            return visibility
        limit = narrowed[act]
        return None if limit is None else visibility.narrowed(limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What policy has to know of the session that acts."""

    session: SessionRow
    agent_id: AgentId
    depth: int
    parent: SessionRow | None
    taint: Classification
    is_sandboxed: bool
    principal: str | None
    """Whose rights the act has, where it is not the owner's: others reach only sessions they take part in."""
    is_guest: bool = False
    """Whether whoever acts is a guest, who reaches the session alone that is written in. Contract: access 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The sessions that a caller reaches in one act."""

    caller: Standing
    act: Act
    visibility: Visibility | None
    """None reaches nothing."""
    agent_to_agent: AgentToAgent

    @property
    def crosses_agents(self) -> bool:
        rules = self.agent_to_agent
        return self.visibility is Visibility.ALL and rules.enabled and rules.admits(self.caller.agent_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """What policy has to know of the session acted upon."""

    session: SessionRow
    agent_id: AgentId
    ancestors: tuple[SessionRow | None, ...]
    """Strict ones, the root first; None for one that was deleted."""
    taint: Classification
    is_participant: bool
    """Whether the caller's principal takes part in it."""


def scope_of(caller: Standing, act: Act, rules: VisibilityRules) -> Scope:
    visibility = rules.of(caller.agent_id, act, is_sandboxed=caller.is_sandboxed)
    if caller.is_guest and visibility is not None:
        visibility = Visibility.SELF
    return Scope(
        caller=caller,
        act=act,
        visibility=visibility,
        agent_to_agent=rules.agent_to_agent,
    )


def decide(scope: Scope, target: TargetFacts) -> Decision:
    """Whether the caller may know of the target in this act; every doubt denies. Contract: visibility 1, 3, 6."""
    caller = scope.caller
    if scope.visibility is None:
        return Deny("visibility.off", f"The act {scope.act.value!r} is switched off for this agent.")
    if not target.taint.flows_to(caller.taint):
        return Deny("flow.read_up", "The session holds data above this one.")
    if target.session == caller.session:
        return ALLOW
    if scope.act is Act.SEND and target.session == caller.parent:
        return ALLOW
    is_descendant = len(target.ancestors) > caller.depth and target.ancestors[caller.depth] == caller.session
    if caller.principal is not None and not (is_descendant or target.is_participant):
        return Deny("access.participant", "Whoever asked takes no part in the session.")
    match scope.visibility:
        case visibility if visibility is not Visibility.SELF and is_descendant:
            return ALLOW
        case Visibility.AGENT | Visibility.ALL if target.agent_id == caller.agent_id:
            return ALLOW
        case Visibility.ALL if scope.agent_to_agent.allows(caller.agent_id, target.agent_id):
            return ALLOW
        case _:
            return Deny(f"visibility.{scope.visibility.value}", "The session lies outside of what this one sees.")
