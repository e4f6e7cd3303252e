"""What a run or a call may do by the principal that its chain began with. Contract: access 4, runs 7."""

from collections.abc import Collection

from antiphon.domain.actor import Principal, PrincipalKind
from antiphon.policy.session_tools import SPAWN_FAMILY

GUEST_TOOLS = frozenset({"session_status", "sessions_history", "sessions_list", "sessions_search", "sessions_send"})
"""What a guest has unasked, on the session alone that is written in; a child of it may send to its requester."""
_TRUSTED = (PrincipalKind.OWNER, PrincipalKind.AGENT)
"""The owner, and tokens that he bound to a session, which have the session's own rights."""


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
