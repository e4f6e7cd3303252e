"""Decides whether a session may spawn a child. Contract: spawn 2."""

from collections.abc import Sequence

from msgspec import Struct

from antiphon.domain.ids import AgentId
from antiphon.policy.decision import ALLOW, Decision, Deny


class SpawnFacts(Struct, frozen=True, kw_only=True):
    """The facts that decide, as they are in the unit that would spawn."""

    agent_id: AgentId
    """The agent of the requesting session."""
    child_agent_id: AgentId
    depth: int
    """The depth of the requesting session."""
    max_depth: int
    active_children: int
    max_children: int
    allowed_agents: Sequence[str]
    """In addition to the session's own agent; `*` for any."""
    is_sandboxed: bool
    """Whether the requesting session is sandboxed."""
    will_be_sandboxed: bool
    requires_sandbox: bool
    wants_harness: bool = False
    """Whether `runtime` asks for an external harness."""
    is_harness: bool = False
    """Whether the child's agent is one."""
    of_subagents: Sequence[str] = ()
    """Parameters of the call that a harness does not take."""


def decide_spawn(facts: SpawnFacts) -> Decision:
    """The first reason to deny, in the contract's order."""
    if facts.depth >= facts.max_depth:
        return Deny(
            "spawn_depth",
            f"This session is at depth {facts.depth}, and sessions may spawn down to depth {facts.max_depth} "
            "(agents.defaults.subagents.maxSpawnDepth). Do the task here.",
        )
    if isinstance(decision := decide_work(facts.active_children, facts.max_children), Deny):
        return decision
    allowed = facts.allowed_agents
    if facts.child_agent_id != facts.agent_id and "*" not in allowed and facts.child_agent_id not in allowed:
        named = ", ".join(sorted(allowed)) or "only its own"
        return Deny(
            "spawn_agent",
            f"This session may not spawn under agent {facts.child_agent_id!r}; allowed: {named} "
            "(agents.list[].subagents.allowAgents). agents_list shows them.",
        )
    if isinstance(decision := _decide_runtime(facts), Deny):
        return decision
    if facts.is_sandboxed and not facts.will_be_sandboxed:
        return Deny(
            "spawn_unsandboxed",
            f"This session is sandboxed, and a child under agent {facts.child_agent_id!r} would not be. "
            "Choose a sandboxed agent.",
        )
    if facts.requires_sandbox and not facts.will_be_sandboxed:
        return Deny(
            "spawn_unsandboxed",
            f"Sandbox is required. Agent {facts.child_agent_id!r} has none (agents.list[].sandbox.mode).",
        )
    return ALLOW


def _decide_runtime(facts: SpawnFacts) -> Decision:
    """Whether the agent is what `runtime` says, and takes what it is given. Contract: spawn 6."""
    name = facts.child_agent_id
    if facts.wants_harness and not facts.is_harness:
        return Deny(
            "spawn_runtime",
            f"Agent {name!r} is no harness that speaks ACP (acp.agents). Leave runtime out, or name another agentId; "
            "agents_list shows the runtime of each.",
        )
    if facts.is_harness and not facts.wants_harness:
        return Deny("spawn_runtime", f"Agent {name!r} is a harness that speaks ACP. Spawn with runtime 'acp'.")
    if facts.is_harness and facts.of_subagents:
        return Deny(
            "spawn_runtime",
            f"Parameter {facts.of_subagents[0]} is for runtime 'subagent' only. Leave it out, and say in the task what "
            "the harness needs to know.",
        )
    return ALLOW


def decide_work(active_children: int, max_children: int) -> Decision:
    """Whether one more child may work."""
    if active_children < max_children:
        return ALLOW
    return Deny(
        "spawn_children",
        f"This session has {active_children} of at most {max_children} children at work "
        "(agents.defaults.subagents.maxChildrenPerAgent). Wait for one with sessions_wait, or cancel one.",
    )
