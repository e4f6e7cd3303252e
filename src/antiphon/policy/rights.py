"""The rights of roles. Only this module asks who is an owner. Contract: access 1, 4, runs 4, 7."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct

from antiphon.domain.actor import Principal, channel_of
from antiphon.domain.classification import Integrity
from antiphon.domain.ids import AgentId
from antiphon.domain.person import PersonRole
from antiphon.domain.session import SessionType
from antiphon.policy.acts import Act
from antiphon.policy.decision import ALLOW, Decision, Deny
from antiphon.policy.session_tools import GUEST_TOOLS, SPAWN_FAMILY
from antiphon.policy.standing import Standing

ASK_PERSON: Final = "ask_person"
"""A question of an agent's runner: whoever begins the run may cause it, and another person answers."""


class RoleTools(Struct, frozen=True, kw_only=True):
    """The tools that the configuration names for roles, besides those that every role has. Owners have all."""

    guest: frozenset[str] = frozenset()
    user: frozenset[str] | None = None
    """None for all."""

    def of(self, standing: Standing) -> frozenset[str] | None:
        """The tools named for the role of the principal; None for all."""
        if is_guest(standing):
            return self.guest
        return self.user if standing.role is PersonRole.USER else None


STAYS = "Leave out 'deliver': the message and its reply then stay in the log"
"""What to do about a message that cannot be sent through its session's channel."""
SUSPENDED = Deny("suspended", "Person is suspended. Only an owner can end that")

_NO_LISTS = "Guests may not list sessions, so the page shows them nothing. Ask an owner to make you a user"
_LEAST: Mapping[Act, tuple[PersonRole, str]] = {
    Act.LIST: (PersonRole.USER, _NO_LISTS),
    Act.READ: (PersonRole.GUEST, ""),
    Act.SEND: (PersonRole.GUEST, ""),
    Act.STATUS: (PersonRole.GUEST, ""),
    Act.CALL: (PersonRole.GUEST, ""),
    Act.CHANGE: (PersonRole.GUEST, ""),
    Act.EDIT: (PersonRole.USER, "Guests may not name or describe sessions"),
    Act.DELETE: (PersonRole.USER, "Guests may not delete sessions"),
    Act.LIST_RUNS: (PersonRole.USER, "Guests may not list runs"),
    Act.LIST_TREES: (PersonRole.USER, _NO_LISTS),
    Act.LIST_WORK: (PersonRole.USER, "Guests may not see who is at work"),
    Act.SPEAK: (PersonRole.OWNER, f"Only owners may speak through a session's channel. {STAYS}"),
    Act.SIGN: (
        PersonRole.OWNER,
        "Only owners, and channels for their senders, may sign and date messages. "
        "Leave out 'sender', 'role' and 'occurredAt'",
    ),
    Act.DELIVER: (PersonRole.OWNER, "Only the owner may see and change deliveries"),
    Act.TOKENS: (PersonRole.OWNER, "Only the owner may use tokens"),
    Act.APPROVE: (PersonRole.USER, "Guests may not decide requests for approval"),
    Act.RELEASE: (PersonRole.OWNER, "Only owners may let words go where they may not"),
    Act.APPROVE_ALWAYS: (PersonRole.OWNER, "Only owners may allow calls always, and see and revoke what is allowed"),
    Act.TRUST: (PersonRole.OWNER, "Only owners trust what was read, and see and revoke what is trusted"),
    Act.AUDIT: (PersonRole.OWNER, "Only owners see and verify the audit"),
    Act.REVIEW_TOOLS: (PersonRole.OWNER, "Only owners may review tools"),
    Act.AGENTS: (PersonRole.OWNER, "Only owners may see and forget agents whose programs are missing"),
    Act.REVIEW_SKILLS: (PersonRole.OWNER, "Only owners may see, trust and remove skills"),
    Act.LINK: (PersonRole.OWNER, "Only the owner may create sign-in links"),
    Act.PEOPLE: (PersonRole.OWNER, "Only owners may see and manage people"),
    Act.CHATS: (PersonRole.OWNER, "Only owners may admit people and groups, and see and change routes"),
    Act.TASKS: (PersonRole.USER, "Guests may not make tasks, and see none"),
    Act.MEASURE: (PersonRole.OWNER, "Only owners may read metrics"),
    Act.SET_MODEL: (PersonRole.OWNER, "Only the owner may set the model"),
    Act.SET_SEND_POLICY: (PersonRole.OWNER, "Only the owner may set the send policy"),
    Act.SET_CLASSIFICATION: (PersonRole.OWNER, "Only owners may set taint and clearance, and manage compartments"),
    Act.REMEMBER: (PersonRole.GUEST, ""),
    Act.SHARE: (PersonRole.OWNER, "Only owners share notes with everybody's chats, and change shared ones"),
    Act.OPEN: (PersonRole.OWNER, "Only the owner, channels and configured hooks may choose session keys"),
}
"""The least role that may perform an act, with the message that others get. Sessions have a reach besides."""
_RANKS = (PersonRole.GUEST, PersonRole.USER, PersonRole.OWNER)
_ACTS: Mapping[tuple[PersonRole | None, Act], Decision] = {
    (role, act): ALLOW if _RANKS.index(role or PersonRole.GUEST) >= _RANKS.index(least) else Deny("forbidden", reason)
    for act, (least, reason) in _LEAST.items()
    for role in (None, *_RANKS)
}
"""The decision for each role and act; who has no role has a guest's."""
_CHANNEL_ACTS = frozenset(
    {Act.LIST, Act.READ, Act.SEND, Act.STATUS, Act.CHANGE, Act.EDIT, Act.OPEN, Act.LIST_RUNS, Act.LIST_TREES}
)
"""What the program of a channel may do in its namespace, and nowhere else. Contract: access 2."""
_NO_CHANNEL = Deny("forbidden", "Channel tokens may read, open and change sessions of their namespace, and write there")


def is_promotion(before: PersonRole, after: PersonRole) -> bool:
    return _RANKS.index(after) > _RANKS.index(before)


def decide_act(standing: Standing, act: Act) -> Decision:
    """Whether the principal may perform the act at all, before any session is named."""
    if standing.is_suspended:
        return SUSPENDED
    if standing.role is None and channel_of(standing.principal) is not None:
        return ALLOW if act in _CHANNEL_ACTS else _NO_CHANNEL
    return _ACTS[standing.role, act]


def may_open(standing: Standing, agent: AgentId, user_agents: Collection[AgentId]) -> bool:
    """Whether the person may open a new session with the agent, under a key that they do not choose.

    `user_agents` are the agents that the configuration allows users; an invitation may name more. Contract: access 4.
    """
    if reaches_all(standing):
        return True
    is_user = standing.role is PersonRole.USER and not standing.is_suspended
    return is_user and (agent in user_agents or agent in standing.agents)


def may_open_main(standing: Standing) -> bool:
    """Whether an agent's main session comes into being when the principal names it. Contract: sessions 4.

    Its key is a chosen one. The program of a channel chooses keys in its namespace, where no main session is.
    """
    return decide_act(standing, Act.OPEN) is ALLOW and channel_of(standing.principal) is None


def may_reset(standing: Standing, type: SessionType) -> bool:
    """Whether a person who takes part in a session of this type may begin it anew. Contract: access 4."""
    return type is SessionType.DIRECT or reaches_all(standing)


def may_checkpoint(standing: Standing, type: SessionType) -> bool:
    """Whether a person who takes part in a session of this type may have it look back. Contract: checkpoints 1.

    It asks a model, and writes notes about them: as with a reset, users may in their own chats, and guests may not.
    """
    return not is_guest(standing) and may_reset(standing, type)


def may_clear(standing: Standing) -> bool:
    """Whether a reset by the principal ends the taint of the session. Contract: sessions 6."""
    return reaches_all(standing)


def reaches_all(standing: Standing) -> bool:
    """Whether the principal reaches sessions that it takes no part in."""
    return standing.role is PersonRole.OWNER and not standing.is_suspended


is_favoured = reaches_all
"""Whether places, requests and storage are reserved for the principal; all others have a share."""
_INTEGRITY: Mapping[PersonRole, Integrity] = {
    PersonRole.OWNER: Integrity.TRUSTED,
    PersonRole.USER: Integrity.USER,
    PersonRole.GUEST: Integrity.GUEST,
}


def integrity_of(standing: Standing) -> Integrity:
    """What the words of the principal are worth. Nobody vouches for those of programs. Contract: flow 2."""
    if standing.role is None or standing.is_suspended:
        return Integrity.UNTRUSTED
    return _INTEGRITY[standing.role]


def integrity_of_role(role: PersonRole | None) -> Integrity:
    """What the words of a person of that role are worth; who has none is a guest."""
    return _INTEGRITY[role or PersonRole.GUEST]


def integrity_of_any(people: Iterable[str], roles: Mapping[str, PersonRole]) -> Integrity:
    """What words are worth that any of these principals may have said; `roles` are those of owners and users."""
    return max((integrity_of_role(roles.get(each)) for each in people), default=Integrity.TRUSTED)


def trusted_by(standing: Standing) -> Integrity:
    """The worst integrity that a run with the rights of the principal trusts. Contract: flow 2."""
    return Integrity.TRUSTED if standing.role is None else _INTEGRITY[standing.role]


is_heard_unnamed = reaches_all
"""Whether its words in a group may be for the agent without a mention. Contract: groups 1, 2."""


def may_join(run: Principal, by: Standing) -> bool:
    """Whether words of `by` may join a run that has the rights of `run`. Contract: runs 4, 7."""
    return by.principal == run or reaches_all(by)


def is_guest(standing: Standing) -> bool:
    """Whether the principal has a guest's rights, as everyone does who is no owner and no user."""
    return standing.is_suspended or standing.role not in (PersonRole.OWNER, PersonRole.USER)


def may_call(tool: str, standing: Standing, role_tools: RoleTools) -> bool:
    """Whether the principal may cause a call of the tool, in any session and for any agent.

    Spawning includes the tools that govern children.
    """
    if standing.is_suspended:
        return False
    named = role_tools.of(standing)
    if named is None or tool == ASK_PERSON or tool in GUEST_TOOLS or tool in named:
        return True
    return tool in SPAWN_FAMILY and "sessions_spawn" in named
