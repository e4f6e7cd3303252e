"""The rights of roles. Only this module asks who is an owner. Contract: access 1, 4, runs 4, 7."""

from collections.abc import Collection, Mapping

from antiphon.domain.actor import Principal
from antiphon.domain.person import PersonRole
from antiphon.policy.acts import Act
from antiphon.policy.decision import ALLOW, Decision, Deny
from antiphon.policy.session_tools import SPAWN_FAMILY
from antiphon.policy.standing import Standing

GUEST_TOOLS = frozenset({"session_status", "sessions_history", "sessions_list", "sessions_search", "sessions_send"})
"""A guest's default tools, for the one session the guest writes to; its children may send to their requester."""

SUSPENDED = Deny("suspended", "Person is suspended. Only an owner can end that")

_OWNERS: Mapping[Act, str] = {
    Act.LIST: "Only the owner may list sessions",
    Act.LIST_RUNS: "Only the owner may list runs",
    Act.LIST_TREES: "Only the owner may see trees",
    Act.LIST_WORK: "Only the owner may see who is at work",
    Act.DELIVER: "Only the owner may see and change deliveries",
    Act.TOKENS: "Only the owner may use tokens",
    Act.APPROVE: "Only the owner may decide requests for approval",
    Act.LINK: "Only the owner may create sign-in links",
    Act.PEOPLE: "Only owners may see and manage people",
    Act.SET_MODEL: "Only the owner may set the model",
    Act.SET_SEND_POLICY: "Only the owner may set the send policy",
    Act.OPEN: "Only the owner, channels and configured hooks may choose session keys",
}
"""Acts that only owners may perform, with the message that others get."""


def decide_act(standing: Standing, act: Act) -> Decision:
    """Whether the principal may perform the act at all, before any session is named."""
    if standing.is_suspended:
        return SUSPENDED
    reason = _OWNERS.get(act)
    return ALLOW if reason is None or reaches_all(standing) else Deny("forbidden", reason)


def reaches_all(standing: Standing) -> bool:
    """Whether the principal reaches sessions that it takes no part in."""
    return standing.role is PersonRole.OWNER and not standing.is_suspended


def is_favoured(standing: Standing) -> bool:
    """Whether places, requests and storage are reserved for the principal; all others have a share."""
    return reaches_all(standing)


def is_heard_unnamed(standing: Standing) -> bool:
    """Whether its words in a group may be for the agent without a mention. Contract: groups 1, 2."""
    return reaches_all(standing)


def may_join(run: Principal, by: Standing) -> bool:
    """Whether words of `by` may join a run that has the rights of `run`. Contract: runs 4, 7."""
    return by.principal == run or reaches_all(by)


def is_guest(standing: Standing) -> bool:
    """Whether the principal has a guest's rights; holders of bound tokens have their session's own."""
    return standing.is_suspended or standing.role is PersonRole.GUEST


def may_call(tool: str, standing: Standing, guest_tools: Collection[str]) -> bool:
    """Whether the principal may cause a call of the tool, in any session and for any agent.

    `guest_tools` are the tools that the configuration allows guests; spawning includes the tools that govern children.
    """
    if standing.is_suspended:
        return False
    if not is_guest(standing) or tool in GUEST_TOOLS or tool in guest_tools:
        return True
    return tool in SPAWN_FAMILY and "sessions_spawn" in guest_tools
