"""Decides whether content of one session may go to another. Contract: flow 1 to 4, 6."""

from antiphon.domain.classification import Classification
from antiphon.policy.decision import ALLOW, Decision, Deny
from antiphon.policy.rights import is_trusted
from antiphon.policy.standing import Standing


def decide_write(context: Classification, clearance: Classification) -> Decision:
    """Whether words made of the context may be written to a place with that clearance. Contract: flow 4."""
    if may_enter(context, clearance):
        return ALLOW
    return Deny("write_down", "this turn has read data that may not go there.")


def classify_message(standing: Standing, route: Classification) -> Classification:
    """What a message of the principal was made of, if it came on a route with that classification."""
    return route if is_trusted(standing) else route.distrusted()


def may_enter(content: Classification, clearance: Classification) -> bool:
    """Whether a reader with this clearance may see the content."""
    return content.flows_to(clearance)
