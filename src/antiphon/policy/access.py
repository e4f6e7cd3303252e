"""Who may touch a session at all. Contract: access 1."""

from antiphon.domain.actor import Principal
from antiphon.policy.decision import ALLOW, Decision, Deny


def decide_access(principal: Principal, *, is_participant: bool) -> Decision:
    """Owners reach every session, others the ones they take part in; any doubt denies."""
    if principal.is_owner or is_participant:
        return ALLOW
    return Deny("access.participant", "You take no part in this session.")
