"""Whether words may leave: to a place, a model's provider, a tool, or whoever calls from outside. Contract: flow 7."""

from antiphon.domain.agent import Agent
from antiphon.domain.classification import Classification
from antiphon.policy.decision import ALLOW, Decision, Deny
from antiphon.policy.flow import may_enter
from antiphon.policy.sinks import Sinks


def takes(sink: Classification, words: Classification) -> bool:
    """Whether a sink with that clearance may have words that were made so."""
    return may_enter(words, sink)


def decide_provider(prompt: Classification, model: str, sinks: Sinks) -> Decision:
    """Whether the provider of the model, `provider:model`, may have the prompt."""
    provider = model.partition(":")[0]
    if takes(sinks.of_provider(provider), prompt):
        return ALLOW
    reason = f"The conversation may not be sent to the provider {provider!r}. Nothing was sent."
    return Deny("model_clearance", reason)


def clearance_of_runner(agent: Agent, sinks: Sinks) -> Classification:
    """What may go to a runner or a harness: what its settings say, else what may go to its model's provider."""
    return agent.clearance or sinks.of_provider(agent.model.partition(":")[0])


def decide_runner(context: Classification, agent: Agent, sinks: Sinks) -> Decision:
    """Whether the runner or harness of the agent may have the context. Contract: foreign_agents 1, 2."""
    if takes(clearance_of_runner(agent, sinks), context):
        return ALLOW
    reason = f"The conversation may not be given to what carries out the runs of agent {agent.id!r}. Nothing was given."
    return Deny("runner_clearance", reason)
