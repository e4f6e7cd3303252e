"""Decides who sees and answers requests for approval. Contract: approvals 3, access 4."""

from collections.abc import Mapping

from msgspec import Struct

from antiphon.domain.approval import Approval, Verdict
from antiphon.domain.classification import Classification
from antiphon.domain.ids import AgentId
from antiphon.domain.person import PersonRole
from antiphon.policy.acts import Act
from antiphon.policy.decision import ALLOW, Decision, Deny
from antiphon.policy.flow import may_enter
from antiphon.policy.rights import decide_act, reaches_all
from antiphon.policy.standing import Standing

_NOBODY = Deny(
    "forbidden", "Only owners, and users for the agents named in access.roles.user.approve, may decide requests"
)


class Deciding(Struct, frozen=True):
    """The requests that a person sees, whether or not they see the session that asked."""

    agents: frozenset[AgentId] | None
    """None for all agents."""
    clearance: Classification
    """What the asking session holds must flow to it, because the calls were made of that. Contract: flow 3."""

    def covers(self, approval: Approval) -> bool:
        is_theirs = self.agents is None or approval.agent_id in self.agents
        return is_theirs and may_enter(approval.made_of, self.clearance)


def decide_deciding(standing: Standing, user_approves: frozenset[AgentId]) -> Deciding | Deny:
    """The requests that the person may see. `user_approves` are the agents whose calls users may approve."""
    decision = decide_act(standing, Act.APPROVE)
    if isinstance(decision, Deny):
        return decision
    if reaches_all(standing):
        return Deciding(None, standing.clearance)
    if standing.role is PersonRole.USER and user_approves:
        return Deciding(user_approves, standing.clearance)
    return _NOBODY


def is_own(standing: Standing, approval: Approval) -> bool:
    """Whether the person's own rights are those of the calls."""
    return standing.role is not None and not standing.is_suspended and approval.principal == standing.principal


def may_see_own(standing: Standing, approval: Approval) -> bool:
    """Whether the person asked for the calls, and may see what became of the request. Contract: flow 3."""
    return is_own(standing, approval) and may_enter(approval.made_of, standing.clearance)


def decide_answer(standing: Standing, approval: Approval, verdicts: Mapping[str, Verdict]) -> Decision:
    """Whether a person who sees the request may answer it so. Nobody below owner approves what they asked for.

    Only owners answer what would release words, also with no.
    """
    if approval.is_release and isinstance(decision := decide_act(standing, Act.RELEASE), Deny):
        return decision
    if any(verdict.means.stands for verdict in verdicts.values()):
        decision = decide_act(standing, Act.APPROVE_ALWAYS)
        if isinstance(decision, Deny):
            return decision
    if is_own(standing, approval) and not reaches_all(standing):
        return Deny("own_request", "You asked for this yourself. Somebody else must decide it")
    return ALLOW
