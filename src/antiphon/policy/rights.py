"""The rights of principals by kind. Only this module asks who is the owner. Contract: access 1, 4, runs 4, 7."""

from collections.abc import Collection, Mapping

from antiphon.domain.actor import Principal, PrincipalKind
from antiphon.policy.acts import Act
from antiphon.policy.decision import ALLOW, Decision, Deny
from antiphon.policy.session_tools import SPAWN_FAMILY

GUEST_TOOLS = frozenset({"session_status", "sessions_history", "sessions_list", "sessions_search", "sessions_send"})
"""A guest's default tools, for the one session the guest writes to; its children may send to their requester."""
_TRUSTED = (PrincipalKind.OWNER, PrincipalKind.AGENT)
"""The owner, and tokens that the owner bound to a session, which have the session's own rights."""

FAVOURED = PrincipalKind.OWNER
"""The principals for whom places, requests and storage are reserved."""

_OWNERS: Mapping[Act, str] = {
    Act.LIST: "Only the owner may list sessions",
    Act.LIST_RUNS: "Only the owner may list runs",
    Act.LIST_TREES: "Only the owner may see trees",
    Act.LIST_WORK: "Only the owner may see who is at work",
    Act.DELIVER: "Only the owner may see and change deliveries",
    Act.TOKENS: "Only the owner may use tokens",
    Act.APPROVE: "Only the owner may decide requests for approval",
    Act.LINK: "Only the owner may create sign-in links",
    Act.SET_MODEL: "Only the owner may set the model",
    Act.SET_SEND_POLICY: "Only the owner may set the send policy",
    Act.OPEN: "Only the owner, channels and configured hooks may choose session keys",
}
"""Acts that only the owner may perform, with the message that others get."""


def decide_act(principal: Principal, act: Act) -> Decision:
    """Whether the principal may perform the act at all, before any session is named."""
    reason = _OWNERS.get(act)
    return ALLOW if reason is None or principal.is_owner else Deny("forbidden", reason)


def reaches_all(principal: Principal) -> bool:
    """Whether the principal reaches sessions that it takes no part in."""
    return principal.is_owner


def is_favoured(principal: Principal) -> bool:
    """Whether places, requests and storage are reserved for the principal; all others have a share."""
    return principal.kind is FAVOURED


def is_heard_unnamed(principal: Principal) -> bool:
    """Whether its words in a group may be for the agent without a mention. Contract: groups 1, 2."""
    return principal.is_owner


def may_join(run: Principal, by: Principal) -> bool:
    """Whether words of `by` may join a run that has the rights of `run`. Contract: runs 4, 7."""
    return by == run or by.is_owner


def is_guest(principal: Principal) -> bool:
    """Whether the principal has a guest's rights: everyone has, except the owner and holders of bound tokens."""
    return principal.kind not in _TRUSTED


def may_call(tool: str, principal: Principal, guest_tools: Collection[str]) -> bool:
    """Whether the principal may cause a call of the tool, in any session and for any agent.

    `guest_tools` are the tools that the configuration allows guests; spawning includes the tools that govern children.
    """
    if not is_guest(principal) or tool in GUEST_TOOLS or tool in guest_tools:
        return True
    return tool in SPAWN_FAMILY and "sessions_spawn" in guest_tools
