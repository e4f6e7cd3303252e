"""Decides by its name alone whether an argument may name a model, before anything is opened. Contract: spawn 2."""

from collections.abc import Mapping

from antiphon.domain.agent import Agent
from antiphon.domain.ids import AgentId
from antiphon.policy.decision import ALLOW, Decision, Deny
from antiphon.policy.patterns import matches_any

_OF_THIS_MACHINE = ("offline", "scripted")
"""Models without a provider. Only the configuration can name them; patterns do not match them."""


def decide_child_model(name: str, agent: Agent, agents: Mapping[AgentId, Agent]) -> Decision:
    """Whether a session of the agent may give a child this model."""
    nameable = nameable_models(agent, agents)
    if name in nameable or (_has_provider(name) and matches_any(name, nameable)):
        return ALLOW
    return Deny(
        "spawn_model",
        "This session may not choose that model for a sub-agent. Leave model out; the owner can allow it with "
        "agents.defaults.subagents.models.",
    )


def nameable_models(agent: Agent, agents: Mapping[AgentId, Agent]) -> tuple[str, ...]:
    """The configured names and patterns, else the models of the agent and of the agents it may spawn."""
    rules = agent.subagents
    if rules.models is not None:
        return rules.models
    spawned = agents if "*" in rules.allowed else rules.allowed
    return (agent.model, *(agents[AgentId(id)].model for id in spawned if id in agents))


def _has_provider(name: str) -> bool:
    provider, colon, model = name.partition(":")
    return bool(provider and colon and model) and provider.strip().lower() not in _OF_THIS_MACHINE
