"""Whether content of one session may go to another. Contract: flow 1, 3, 4, 6."""

from antiphon.domain.classification import Classification
from antiphon.domain.session import Session
from antiphon.policy.decision import ALLOW, Decision, Deny


def may_flow(source: Session, target: Session) -> bool:
    """Whether what the one session knows may be told to the other, as both stand."""
    return may_enter(source.taint, target.taint)


def decide_flow(source: Session, target: Session) -> Decision:
    """The same, with the reason, for what a session says to another."""
    return ALLOW if may_flow(source, target) else Deny("write_down", "this session holds data above that one.")


def may_enter(content: Classification, clearance: Classification) -> bool:
    """Whether content of that classification may be seen by whoever has the clearance."""
    return content.flows_to(clearance)
