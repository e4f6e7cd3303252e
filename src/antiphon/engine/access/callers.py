"""The session that calls a tool, and what it may reach. Contract: answers 2, 3, tools 1, visibility.

The caller comes from the run or from the edge that has authenticated somebody, never from a tool's arguments.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol

from antiphon.domain.actor import Principal, session_principal
from antiphon.domain.errors import Denied, Invalid, NotFound
from antiphon.domain.ids import AgentId, RunId, SessionRow
from antiphon.domain.run import Run
from antiphon.domain.session import Session
from antiphon.domain.targets import NamedTarget, RelativeTarget, Target
from antiphon.engine.access.lookup import NOBODY, Found, look_up, may_access, present_incarnation
from antiphon.engine.ledger.fence import Fence, Fenced
from antiphon.engine.refusal import Refusal
from antiphon.engine.rules import Rules
from antiphon.policy.decision import Deny
from antiphon.policy.rights import is_guest
from antiphon.policy.session_tools import is_bound_to_parent
from antiphon.policy.visibility import Act, Scope, Standing, TargetFacts, Visibility, decide, scope_of
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Query


class CallingRun(Protocol):
    """The claimed run in which a tool is called, as far as tools and use cases need it."""

    @property
    def run(self) -> Run: ...

    @property
    def fence(self) -> Fence: ...

    async def note_waiting(self, run_id: RunId, timeout: timedelta) -> None:
        """Says in the ledger for which run this one waits, so that a cycle of waits is seen."""
        ...

    async def wait_run(self, run_id: RunId, timeout: timedelta) -> Run | None:
        """The other run once it has ended, None on time-out; meanwhile this run takes no slot."""
        ...

    async def wait_released(self, run_id: RunId, timeout: timedelta, session: SessionRow | None = None) -> Run | None:
        """The same where the ledger knows already that this run waits."""
        ...

    async def wait_several_released(
        self, run_ids: Sequence[RunId], sessions: Collection[SessionRow], timeout: timedelta, *, for_all: bool
    ) -> None:
        """The same for several runs: for one of them, or for all."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls a tool: a run of a session, or somebody outside who acts as that session."""

    session: SessionRow
    agent_id: AgentId
    principal: Principal
    """Whose rights the call has."""
    call_id: str
    """The same when the call is repeated, after a crash or by its `Idempotency-Key`."""
    run: CallingRun | None
    """None for a call from outside, which takes no turn of the session."""

    @property
    def is_sandboxed(self) -> bool:
        """Whether a sandboxed session caused the call, apart from the caller's own."""
        return self.run is not None and self.run.run.is_sandboxed


async def find_origin(query: Query, caller: Caller) -> Run | None:
    """The caller's run as the ledger has it; None for a call from outside. Raises `Fenced` if it is another's now."""
    if caller.run is None:
        return None
    run = await ledger.find(query, caller.run.run.id)
    if run is None or run.fence != caller.run.fence.number or not run.status.is_active:
        raise Fenced
    return run


@dataclass(frozen=True, slots=True)
class Reach:
    """A caller's row, and its scope for one act."""

    session: Session
    scope: Scope


async def find_reach(query: Query, caller: Caller, act: Act, rules: Rules) -> Reach | Refusal:
    """What the caller reaches; refused where the act is switched off, or the session is gone."""
    session = await rows.find_by_row(query, caller.session)
    if session is None:
        return Refusal(NotFound("Session not found: the caller's own was deleted."))
    scope = scope_of(_standing(session, caller, rules), act, rules.visibility)
    if act is Act.SEND and session.depth > 0:
        # Whatever is narrowed or switched off, a child may send to its requester. Contract: visibility 6.
        is_bound = scope.visibility is None or is_bound_to_parent(session.depth, rules.subagent_tools)
        scope = replace(scope, visibility=Visibility.SELF) if is_bound else scope
    if scope.visibility is None:
        return Refusal(
            Denied(
                f"Act is switched off for agent {caller.agent_id!r}: {act.value!r}. "
                f"The owner may allow it by agents.list[].tools.sessions.{act.value}.",
                code="act_off",
            )
        )
    return Reach(session, scope)


def _standing(session: Session, caller: Caller, rules: Rules) -> Standing:
    has_all = _has_all_rights(caller.principal, session)
    return Standing(
        session=session.row,
        agent_id=session.agent_id,
        depth=session.depth,
        parent=session.parent,
        taint=session.taint,
        is_sandboxed=caller.is_sandboxed or rules.are_sandboxed(session),
        principal=None if has_all else str(caller.principal),
        is_guest=not has_all and is_guest(caller.principal),
    )


def _has_all_rights(principal: Principal, session: Session) -> bool:
    """Of the session: the owner, and whoever holds a token that is bound to it."""
    return principal.is_owner or principal == session_principal(str(session.key))


async def find_target(query: Query, caller: Caller, reach: Reach, target: Target, name: str) -> Found | Refusal:
    """The session that the caller names, as far as its scope reaches.

    Key and id each resolve by a fixed list of statements; what is missing and what is hidden get one refusal.
    """
    found = await _find(query, reach, target)
    principal = caller.principal
    takes_part = reach.scope.caller.principal is not None and await _takes_part(query, principal, found)
    if found is not None:
        decision = decide(reach.scope, facts_of(found, is_participant=takes_part))
        if not isinstance(decision, Deny):
            return found
    return Refusal(not_visible(name, reach.scope))


async def find_by_label(query: Query, reach: Reach, label: str, agent_id: AgentId | None) -> Found | Refusal:
    """The one listed session of that label in the scope; two are refused, and neither is named. Contract: send 1."""
    matches = await rows.find_visible_by_label(query, reach.scope, label, agent_id, limit=2)
    session = await rows.find_by_row(query, matches[0].row if matches else NOBODY)
    if len(matches) > 1:
        return Refusal(
            Invalid(
                f"Label is not unique: {label[:200]!r}. Name the session by its key, as sessions_list shows it.",
                code="ambiguous_label",
            )
        )
    if session is None:
        return Refusal(not_visible(label, reach.scope))
    return Found(session, present_incarnation(session))


async def _find(query: Query, reach: Reach, target: Target) -> Found | None:
    match target:
        case NamedTarget():
            return await look_up(query, target)
        case RelativeTarget.CURRENT:
            session = await rows.find_by_row(query, reach.session.row)
        case RelativeTarget.PARENT:
            session = await rows.find_by_row(query, reach.session.parent or NOBODY)
    return None if session is None else Found(session, present_incarnation(session))


async def _takes_part(query: Query, principal: Principal, found: Found | None) -> bool:
    return await rows.is_participant(query, found.session.row if found else NOBODY, str(principal))


def facts_of(found: Found, *, is_participant: bool) -> TargetFacts:
    """For policy; an ended incarnation has a taint of its own."""
    session = found.session
    return TargetFacts(
        session=session.row,
        agent_id=session.agent_id,
        ancestors=session.ancestors,
        taint=found.incarnation.taint,
        is_participant=is_participant,
    )


_SEES = {
    Visibility.SELF: "only itself",
    Visibility.TREE: "itself and the sessions that it spawned",
    Visibility.AGENT: "the sessions of its agent",
    Visibility.ALL: "the sessions of its agent, and of others as far as tools.agentToAgent allows",
}


def not_visible(name: str, scope: Scope) -> NotFound:
    """One text for what is missing and what is hidden; it depends on the caller's own policy alone."""
    assert scope.visibility is not None
    return NotFound(
        f"Session not found: {name[:200]!r}. This session sees {_SEES[scope.visibility]} "
        f"(tools.sessions.visibility = {scope.visibility.value!r}); sessions_list shows them."
    )


@dataclass(frozen=True, slots=True)
class FoundCaller:
    caller: Caller
    depth: int


class Callers:
    """Lets people and programs act as a session."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, principal: Principal, target: NamedTarget, call_id: str) -> FoundCaller | None:
        """Somebody outside, acting as the session; None if it is missing or not theirs."""
        return await self._database.read(_find_caller, principal, target, call_id)

    async def are_one(self, target: NamedTarget, other: NamedTarget) -> bool:
        """Whether both name the same session, and there is one."""
        return await self._database.read(_are_one, target, other)

    async def session_of(self, caller: Caller) -> Session:
        """The caller's row as it stands. Raises `NotFound` if it was deleted."""
        session = await self._database.read(rows.find_by_row, caller.session)
        if session is None:
            raise NotFound("Session not found: the caller's own was deleted.")
        return session


async def _are_one(query: Query, target: NamedTarget, other: NamedTarget) -> bool:
    one, another = await look_up(query, target), await look_up(query, other)
    return one is not None and another is not None and one.session.row == another.session.row


async def _find_caller(query: Query, principal: Principal, target: NamedTarget, call_id: str) -> FoundCaller | None:
    found = await look_up(query, target)
    may = await may_access(query, principal, found.session.row if found else NOBODY)
    if found is None or not (may or principal == session_principal(str(found.session.key))):
        return None
    session = found.session
    caller = Caller(
        session=session.row,
        agent_id=session.agent_id,
        principal=principal,
        call_id=f"{session.row}:{call_id}",
        run=None,
    )
    return FoundCaller(caller, session.depth)
