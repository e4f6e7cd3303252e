"""The reach of an actor, and the session it names: the only place where the engine asks policy for permission.

The same rules serve people, token holders and sessions. Missing and hidden sessions get one refusal, after the
same number of statements. Contract: answers 2, access 1, visibility.
"""

from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.errors import REFUSALS, Denied, Invalid, NotFound
from antiphon.domain.ids import AgentId, SessionId, SessionRow
from antiphon.domain.session import Session
from antiphon.domain.targets import NamedTarget, RelativeTarget, Target
from antiphon.engine.access.caller import Caller
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.authorize import UNLIMITED, Limits, authorize
from antiphon.policy.decision import Deny
from antiphon.policy.reach import (
    Grant,
    Reach,
    decide,
    decide_participation,
    grant_listed,
    reach_of_session,
)
from antiphon.policy.rights import decide_act
from antiphon.policy.shown import shown_session
from antiphon.policy.standing import Standing
from antiphon.policy.visibility import AgentToAgent, Visibility
from antiphon.store import askers, incarnations, tasks
from antiphon.store import sessions as rows
from antiphon.store.askers import Portion
from antiphon.store.database import Query
from antiphon.store.people import find_standing

H = TypeVar("H", rows.SessionHead, rows.LogHead)
R = TypeVar("R")
NOBODY = SessionRow(-1)
"""Matches no session's row; looked up where nothing was found, so that the number of statements stays the same."""


class TokenHolder(Struct, frozen=True, kw_only=True, gc=False):
    """A program with a token that is bound to a session. It calls tools as that session and does nothing else."""

    principal: Principal
    """The person who made the token, within whose present rights it acts."""
    session: SessionRow
    session_key: str


Outsider: TypeAlias = Principal | TokenHolder
"""A person or program that acts from outside a run."""
Actor: TypeAlias = Outsider | Caller
"""One who acts from outside, or a session that calls a tool."""


class Rights(Struct, frozen=True, gc=False):
    """An actor, and the rules that decide what it may do."""

    actor: Actor
    rules: Rules

    @property
    def principal(self) -> Principal:
        """The actor itself; for a token's holder or a session that calls a tool, the principal with whose rights."""
        return self.actor if isinstance(self.actor, Principal) else self.actor.principal


class Candidate(Struct, frozen=True):
    """A session and the named incarnation: the present one, unless the id of an ended one was given."""

    session: Session
    incarnation: incarnations.Incarnation


class Found(Struct, frozen=True):
    """A candidate that the actor may see or change."""

    grant: Grant
    session: Session
    """The whole row, to decide and to act by; readers get `shown` or `as_named`."""
    incarnation: incarnations.Incarnation

    @property
    def is_ended(self) -> bool:
        """Whether the named incarnation has ended."""
        return self.incarnation.last_seq is not None

    @property
    def shown(self) -> Session:
        """The session without what is above the grant's clearance. Contract: flow 3."""
        return shown_session(self.session, self.grant.clearance)

    @property
    def as_named(self) -> Session:
        """`shown`, with the id, the taint and the part of the log of that incarnation. Contract: keys 6."""
        ended, session = self.incarnation, self.shown
        if ended.last_seq is None:
            return session
        return replace(
            session,
            id=ended.id,
            incarnation_seq=ended.first_seq,
            last_seq=ended.last_seq,
            started_at=ended.started_at,
            taint=ended.taint,
        )


class FoundHead(Struct, Generic[H], frozen=True, gc=False):
    """Like `Found`, with only a head of the session's row."""

    grant: Grant
    head: H


async def find_reach(query: Query, rights: Rights, act: Act) -> Reach:
    """The actor's reach; refused if policy never allows it this act, or if the calling session is gone."""
    actor, rules = rights.actor, rights.rules
    standing = await find_standing(query, rights.principal)
    if not isinstance(actor, Caller):
        limits = UNLIMITED if isinstance(actor, Principal) else Limits(session=actor.session)
        return reach_of(standing, act, limits)
    session = await rows.find_by_row(query, actor.session)
    if session is None:
        raise NotFound("Session not found: the caller's own session was deleted.")
    visibility = rules.visibility
    if actor.task is not None and not await tasks.may_consult(query, actor.task):
        visibility = replace(visibility, agent_to_agent=AgentToAgent())  # Contract: tasks 2, approvals 4
    reach = reach_of_session(
        session,
        standing,
        act,
        visibility,
        is_sandboxed=actor.is_sandboxed or rules.are_sandboxed(session),
        subagent_tools=rules.subagent_tools,
    )
    return _granted(reach)


async def find_reach_if_any(query: Query, rights: Rights, act: Act) -> Reach | None:
    """Like `find_reach`; None if it is refused, for what is left out where the actor may see none of it."""
    try:
        return await find_reach(query, rights, act)
    except REFUSALS:
        return None


def reach_of(standing: Standing, act: Act, limits: Limits = UNLIMITED) -> Reach:
    """Like `find_reach`, for a person or program whose standing this unit has read."""
    return _granted(authorize(standing, limits, act))


def refuse_act(standing: Standing, act: Act) -> None:
    """Raises `Denied` if the principal may never do this act, whatever the session."""
    _granted(decide_act(standing, act))


def _granted(decision: R | Deny) -> R:
    if isinstance(decision, Deny):
        raise Denied(decision.reason, code=decision.rule)
    return decision


async def find_target(
    query: Query, reach: Reach, target: Target, name: str | None = None, *, new: Session | None = None
) -> Found:
    """The named session, if it is within reach; `name` is the target as the actor wrote it.

    `new` is the session that the act opens if it does not exist, as it will be; it must be within reach just the same.
    """
    if isinstance(target, NamedTarget):
        candidate, written = await look_up(query, target), target_name(target)
    else:
        candidate, written = await _look_up_relative(query, reach, target), target.value
    if candidate is None and new is not None:
        candidate = Candidate(new, present_incarnation(new))
    found = await admit(query, reach, candidate)
    if found is None:
        raise not_found(reach, name or written)
    return found


async def find_session(query: Query, rights: Rights, act: Act, target: NamedTarget) -> Found:
    """The session, if the actor may do this act on it."""
    actor = rights.actor
    if not isinstance(actor, Principal) or target.key is None:
        reach = await find_reach(query, rights, act)
        return await find_target(query, reach, target)
    standing, by_key = await askers.find_with_session(query, actor, target.key, askers.WHOLE)
    reach = reach_of(standing, act)
    candidate = await _look_up_besides(query, by_key, target.session_id)
    found = await admit(query, reach, candidate)
    if found is None:
        raise not_found(reach, target_name(target))
    return found


async def find_head(
    query: Query, principal: Principal, act: Act, target: NamedTarget, *, portion: Portion[H]
) -> tuple[Standing, FoundHead[H]]:
    """Like `find_session`, for people, with only a head of the row; also what the person is at present."""
    if target.key is None:
        standing, by_key = await find_standing(query, principal), None
    else:
        standing, by_key = await askers.find_with_session(query, principal, target.key, portion)
    reach = reach_of(standing, act)
    by_id = None
    if target.session_id:
        incarnation = await incarnations.find(query, target.session_id)
        by_id = await portion.find_by_row(query, incarnation.session if incarnation else NOBODY)
    head = by_key or by_id
    if reach.participant is None:  # nothing to read; every message of an owner comes through here
        found = _decide_head(reach, head, False)
    else:
        found = await admit_head(query, reach, head)
    if found is None:
        raise not_found(reach, target_name(target))
    return standing, found


async def find_by_label(query: Query, reach: Reach, label: str, agent_id: AgentId | None) -> Found:
    """The only listed session with that label in reach. Refuses two, and names neither. Contract: send 1."""
    matches = await rows.find_visible_by_label(query, reach, label, agent_id, limit=2)
    session = await rows.find_by_row(query, matches[0].row if matches else NOBODY)
    if len(matches) > 1:
        raise Invalid(
            f"Label is not unique: {label[:200]!r}. Name the session by its key, as sessions_list shows it.",
            code="ambiguous_label",
        )
    if session is None:
        raise not_found(reach, label)
    return Found(grant_listed(reach, session), session, present_incarnation(session))


async def admit(query: Query, reach: Reach, candidate: Candidate | None, *, is_joining: bool = False) -> Found | None:
    """The candidate, if it exists and is within reach; of a session that the actor is joining, as its participant."""
    takes_part = is_joining or await _takes_part(query, reach, candidate.session.row if candidate else NOBODY)
    if candidate is None:
        return None
    session, incarnation = candidate.session, candidate.incarnation
    grant = decide(reach, session, incarnation=incarnation.id, taint=incarnation.taint, is_participant=takes_part)
    return None if isinstance(grant, Deny) else Found(grant, session, incarnation)


async def admit_head(query: Query, reach: Reach, head: H | None, *, is_joining: bool = False) -> FoundHead[H] | None:
    """Like `admit`, for people, with only the head of the row."""
    takes_part = is_joining or (
        reach.participant is not None and await _takes_part(query, reach, head.row if head else NOBODY)
    )
    return _decide_head(reach, head, takes_part)


def _decide_head(reach: Reach, head: H | None, takes_part: bool) -> FoundHead[H] | None:
    if head is None:
        return None
    grant = decide_participation(reach, head.row, head.id, is_participant=takes_part)
    return None if isinstance(grant, Deny) else FoundHead(grant, head)


async def _takes_part(query: Query, reach: Reach, session: SessionRow) -> bool:
    return reach.participant is not None and await rows.is_participant(query, session, reach.participant)


async def look_up(query: Query, target: NamedTarget) -> Candidate | None:
    """The session by key, else by id, whoever asks. Always runs all statements, even if the first ones find it."""
    by_key = await rows.find_by_key(query, target.key) if target.key is not None else None
    return await _look_up_besides(query, by_key, target.session_id)


async def _look_up_besides(query: Query, by_key: Session | None, id: SessionId | None) -> Candidate | None:
    """The session that was found by its key, else the one with the id."""
    incarnation = await incarnations.find(query, id) if id else None
    by_id = await rows.find_by_row(query, incarnation.session if incarnation else NOBODY) if id else None
    session = by_key or by_id
    if session is None:
        return None
    if by_key is not None or incarnation is None:
        incarnation = present_incarnation(session)
    return Candidate(session, incarnation)


async def _look_up_relative(query: Query, reach: Reach, target: RelativeTarget) -> Candidate | None:
    assert reach.viewer is not None
    own = reach.viewer.session
    row = own.row if target is RelativeTarget.CURRENT else own.parent or NOBODY
    session = await rows.find_by_row(query, row)
    return None if session is None else Candidate(session, present_incarnation(session))


def present_incarnation(session: Session) -> incarnations.Incarnation:
    return incarnations.Incarnation(
        id=SessionId(session.id),
        session=session.row,
        first_seq=session.incarnation_seq,
        last_seq=None,
        started_at=session.started_at,
        taint=session.taint,
    )


def target_name(target: NamedTarget) -> str:
    return str(target.key or target.session_id)


_SEES = {
    Visibility.SELF: "only itself",
    Visibility.TREE: "itself and the sessions that it spawned",
    Visibility.AGENT: "the sessions of its agent",
    Visibility.ALL: "the sessions of its agent, and of others as far as tools.agentToAgent allows",
}


def not_found(reach: Reach, name: str) -> NotFound:
    """The same text for missing and hidden sessions; it depends only on the actor's own policy."""
    if reach.viewer is None:
        error = NotFound(f"Session not found: {name!r}. `sessions list` shows the sessions that you may see.")
    else:
        visibility = reach.viewer.visibility
        error = NotFound(
            f"Session not found: {name[:200]!r}. This session sees {_SEES[visibility]} "
            f"(tools.sessions.visibility = {visibility.value!r}); sessions_list shows them."
        )
    error.asked_for = None if reach.is_everything else name
    return error
