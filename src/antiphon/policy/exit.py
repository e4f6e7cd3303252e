"""Whether words may leave: to a place, a model's provider, a tool, or whoever calls from outside. Contract: flow 7."""

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
