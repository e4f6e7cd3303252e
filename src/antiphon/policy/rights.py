"""What principals may, by who they are. Only here it is asked who is the owner. Contract: access 1, 4, runs 4, 7."""

from collections.abc import Collection, Mapping

from antiphon.domain.actor import Principal, PrincipalKind
from antiphon.policy.acts import Act
from antiphon.policy.decision import ALLOW, Decision, Deny
from antiphon.policy.session_tools import SPAWN_FAMILY

GUEST_TOOLS = frozenset({"session_status", "sessions_history", "sessions_list", "sessions_search", "sessions_send"})
"""What a guest has unasked, on the session alone that is written in; a child of it may send to its requester."""
_TRUSTED = (PrincipalKind.OWNER, PrincipalKind.AGENT)
"""The owner, and tokens that he bound to a session, which have the session's own rights."""

_OWNERS: Mapping[Act, str] = {
    Act.LIST: "Sessions are listed for the owner only",
    Act.LIST_RUNS: "Runs are listed for the owner only",
    Act.LIST_TREES: "Trees are shown to the owner only",
    Act.LIST_WORK: "Who is at work is shown to the owner only",
    Act.DELIVER: "Deliveries are shown to the owner only",
    Act.TOKENS: "Tokens are for the owner only",
    Act.LINK: "Sign-in links are for the owner only",
    Act.SET_MODEL: "Model is set by the owner only",
    Act.SET_SEND_POLICY: "Send policy is set by the owner only",
    Act.OPEN: "Session keys are chosen by the owner, channels and configured hooks only",
}
"""Acts of the owner alone, and what others are told."""


def decide_act(principal: Principal, act: Act) -> Decision:
    """Whether the principal may do it at all, before any session is named."""
    reason = _OWNERS.get(act)
    return ALLOW if reason is None or principal.is_owner else Deny("forbidden", reason)


def reaches_all(principal: Principal) -> bool:
    """Whether the principal reaches sessions that it takes no part in."""
    return principal.is_owner


def is_favoured(principal: Principal) -> bool:
    """Whether places, requests and storage are kept for the principal; every other one has a share."""
    return principal.is_owner


def is_heard_unnamed(principal: Principal) -> bool:
    """Whether its words in a group may be meant for the agent without a mention. Contract: groups 1, 2."""
    return principal.is_owner


def may_join(run: Principal, by: Principal) -> bool:
    """Whether words of the one may become part of a run with the other's rights. Contract: runs 4, 7."""
    return by == run or by.is_owner


def is_guest(principal: Principal) -> bool:
    """Whether the principal has a guest's rights: so has everybody but the owner and holders of bound tokens."""
    return principal.kind not in _TRUSTED


def may_call(tool: str, principal: Principal, guest_tools: Collection[str]) -> bool:
    """Whether the principal may cause a call of the tool, whatever session and agent it belongs to.

    `guest_tools` are those that the configuration names for guests; spawning brings the tools that govern children.
    """
    if not is_guest(principal) or tool in GUEST_TOOLS or tool in guest_tools:
        return True
    return tool in SPAWN_FAMILY and "sessions_spawn" in guest_tools
