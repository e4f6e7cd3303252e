"""Decides what an actor may see or change in one act. Contract: access 1, visibility 1 to 6, flow 3.

Policy turns an actor and an act into a *reach*, before any target is known. Lists turn the reach into SQL
(`store/scopes`), so that filters apply before limit and count. `decide` checks one session against a reach and returns
a *grant*, which reading that session requires. Only `policy/` creates both; the engine's own work uses `policy/system`.
"""

from collections.abc import Collection

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.classification import EVERYTHING, PUBLIC, Classification
from antiphon.domain.ids import SessionId, SessionRow
from antiphon.domain.session import Session, SessionSummary
from antiphon.domain.session_ids import namespace_of
from antiphon.policy.acts import Act
from antiphon.policy.decision import Deny
from antiphon.policy.flow import may_enter
from antiphon.policy.rights import SUSPENDED, is_guest, reaches_all
from antiphon.policy.session_tools import is_bound_to_parent
from antiphon.policy.standing import Standing
from antiphon.policy.visibility import AgentToAgent, Visibility, VisibilityRules


class Viewer(Struct, frozen=True, kw_only=True):
    """The acting session, and how far it sees."""

    session: Session
    visibility: Visibility
    agent_to_agent: AgentToAgent

    @property
    def crosses_agents(self) -> bool:
        rules = self.agent_to_agent
        return self.visibility is Visibility.ALL and rules.enabled and rules.admits(self.session.agent_id)


class Reach(Struct, frozen=True, kw_only=True, gc=False):
    """The sessions that an actor reaches in one act."""

    act: Act
    participant: str | None = None
    """A principal that reaches only the sessions it takes part in; None for no such limit."""
    namespace: str | None = None
    """The namespace of session ids that a channel is confined to; None for no such limit. Contract: access 2."""
    only: SessionRow | None = None
    """The one session of these that it holds; None for no such limit."""
    viewer: Viewer | None = None
    """None for people and for the system."""
    cleared: Classification = EVERYTHING
    """What the person or program may read; for a session, its taint counts instead."""

    @property
    def is_everything(self) -> bool:
        return self.participant is None and self.namespace is None and self.only is None and self.viewer is None

    @property
    def clearance(self) -> Classification:
        """The clearance to which everything seen of the sessions must flow. Contract: flow 3."""
        return self.cleared if self.viewer is None else self.viewer.session.taint


class Grant(Struct, frozen=True, gc=False):
    """One session that an actor may see or change in one act."""

    act: Act
    session: SessionRow
    incarnation: SessionId | None
    """The incarnation that may be read; None for all incarnations of the key."""
    clearance: Classification = EVERYTHING
    """What may be read of it: messages that flow to this clearance."""

    def covers(self, incarnation: SessionId) -> bool:
        return self.incarnation is None or self.incarnation == incarnation


def reach_of_session(
    session: Session,
    standing: Standing,
    act: Act,
    rules: VisibilityRules,
    *,
    is_sandboxed: bool,
    subagent_tools: Collection[str],
) -> Reach | Deny:
    """The reach of a session that acts with the rights of a principal. Contract: visibility 2, 5, 6, access 4."""
    if standing.is_suspended:
        return SUSPENDED
    has_all = reaches_all(standing)
    visibility = rules.of(session.agent_id, act, is_sandboxed=is_sandboxed)
    if visibility is not None and not has_all and is_guest(standing):
        visibility = Visibility.SELF
    if act is Act.SEND and session.depth > 0 and (visibility is None or is_bound_to_parent(subagent_tools)):
        # However narrow its visibility is, a child may send to its requester. Contract: visibility 6.
        visibility = Visibility.SELF
    if visibility is None:
        return Deny(
            "act_off",
            f"Act {act.value!r} is switched off for agent {session.agent_id!r}. "
            f"The owner can allow it with agents.list[].tools.sessions.{act.value}.",
        )
    return Reach(
        act=act,
        participant=None if has_all else str(standing.principal),
        viewer=Viewer(session=session, visibility=visibility, agent_to_agent=rules.agent_to_agent),
    )


def decide(
    reach: Reach, session: Session, *, incarnation: SessionId, taint: Classification, is_participant: bool
) -> Grant | Deny:
    """Whether the session is within the reach; every doubt denies. Contract: visibility 1, 3, 6.

    `taint` is that of the incarnation to be seen; `is_participant` says whether the reach's `participant` takes part.
    """
    viewer = reach.viewer
    if viewer is None:
        return decide_participation(reach, session.row, session.id, is_participant=is_participant)
    grant = Grant(act=reach.act, session=session.row, incarnation=incarnation, clearance=reach.clearance)
    own = viewer.session
    if not may_enter(taint, reach.clearance):
        return Deny("flow.read_up", "The session contains data that may not flow to this session.")
    if session.row == own.row:
        return grant
    if reach.act is Act.SEND and session.row == own.parent:
        return grant
    is_descendant = len(session.ancestors) > own.depth and session.ancestors[own.depth] == own.row
    if reach.participant is not None and not (is_descendant or is_participant):
        return Deny("access.participant", "The person who asked does not take part in the session.")
    match viewer.visibility:
        case visibility if visibility is not Visibility.SELF and is_descendant:
            return grant
        case Visibility.AGENT | Visibility.ALL if session.agent_id == own.agent_id:
            return grant
        case Visibility.ALL if viewer.agent_to_agent.allows(own.agent_id, session.agent_id):
            return grant
        case _:
            return Deny(f"visibility.{viewer.visibility.value}", "The session is not visible to this session.")


def as_public(reach: Reach) -> Reach:
    """The same sessions, with only what anybody may read of them."""
    return replace(reach, cleared=PUBLIC)


def is_as_far(one: Reach, other: Reach) -> bool:
    """Whether both reaches belong to one actor and hold the same sessions."""
    return (one.participant, one.namespace, one.only, one.viewer, one.cleared) == (
        other.participant,
        other.namespace,
        other.only,
        other.viewer,
        other.cleared,
    )


def grant_listed(reach: Reach, session: SessionSummary) -> Grant:
    """The grant of a session that a list in this reach has returned; `store/scopes` has already decided it."""
    return Grant(act=reach.act, session=session.row, incarnation=session.id, clearance=reach.clearance)


def decide_participation(reach: Reach, session: SessionRow, id: SessionId, *, is_participant: bool) -> Grant | Deny:
    """Whether a person reaches the session: owners reach every session, others those they take part in.

    The session does not vanish for them if it rises above their clearance: they see less of it. Contract: flow 3.

    A bound token reaches only its session, as long as its maker does. A channel reaches the sessions whose present
    `id` is in its namespace. Contract: access 1, 2.
    """
    assert reach.viewer is None
    if reach.namespace is not None and namespace_of(id) != reach.namespace:
        return Deny("access.namespace", "The session is not in the channel's namespace.")
    if reach.only not in (None, session):
        return Deny("access.bound", "The token is bound to another session.")
    if reach.participant is None or is_participant:
        return Grant(reach.act, session, None, reach.clearance)
    return Deny("access.participant", "You do not take part in this session.")
