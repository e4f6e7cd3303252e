"""Decides whether content of one session may go to another. Contract: flow 1 to 4, 6."""

from antiphon.domain.classification import Classification
from antiphon.domain.session import Session
from antiphon.policy.decision import ALLOW, Decision, Deny
from antiphon.policy.rights import is_trusted
from antiphon.policy.standing import Standing


def may_flow(source: Session, target: Session) -> bool:
    """Whether the target may read what the source holds now."""
    return may_enter(source.taint, target.taint)


def decide_flow(source: Session, target: Session) -> Decision:
    """Like `may_flow`, with the reason, for messages from a session to another."""
    return ALLOW if may_flow(source, target) else Deny("write_down", "this session is classified above that one.")


def classify_message(standing: Standing, route: Classification) -> Classification:
    """What a message of the principal was made of, if it came on a route with that classification."""
    return route if is_trusted(standing) else route.distrusted()


def may_enter(content: Classification, clearance: Classification) -> bool:
    """Whether a reader with this clearance may see the content."""
    return content.flows_to(clearance)
