"""Lets people and programs act as a session. Contract: tools 1, access 2."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from antiphon.clock import Clock
from antiphon.domain.classification import EVERYTHING, Classification
from antiphon.domain.errors import Denied, NotFound
from antiphon.domain.session import Session
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.ceilings import find_ceiling
from antiphon.engine.access.reach import Outsider, Rights, find_session, look_up, target_name
from antiphon.engine.ledger.append import raise_workspace
from antiphon.engine.rules import Rules
from antiphon.feed.notifier import Notifier
from antiphon.policy.acts import Act
from antiphon.policy.exit import takes
from antiphon.policy.standing import Standing
from antiphon.store import incarnations
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Query
from antiphon.store.people import NAMES, find_standing

_Find: TypeAlias = Callable[[Query, Rights, NamedTarget, str], Coroutine[Any, Any, "FoundCaller"]]
FRESH_SECONDS = 1.0
"""How long found rights count, unless anybody's rights change meanwhile. Contract: access 2."""


class FoundCaller(Struct, frozen=True):
    caller: Caller
    depth: int
    standing: Standing
    """That of the principal whose rights the call has."""
    session: Session
    clearance: Classification
    """What the caller may read."""
    since: float = 0.0
    """When that was so, by the monotonic clock."""
    changes: int = 0
    """How often the rights of somebody had changed until then."""


class Callers:
    """Callers of tools from outside a run."""

    def __init__(self, database: Database, notifier: Notifier, rules: Rules, clock: Clock) -> None:
        self._database = database
        self._rules = rules
        self._clock = clock
        self._changes = 0
        notifier.subscribe(NAMES, self._note_change)

    async def find(self, actor: Outsider, target: NamedTarget, call_id: str) -> FoundCaller:
        """A client outside that acts as the session. Raises `NotFound` if it is missing or out of reach."""
        return await self._find(find_caller, actor, target, call_id)

    async def present(self, found: FoundCaller, actor: Outsider, target: NamedTarget, call_id: str) -> FoundCaller:
        """The same caller with the rights of now, which a wait may have outlived. Raises like `find`.

        A session that has risen above the client's clearance is no error any more: the call was made, and what may be
        told of it is decided with its answer.
        """
        if found.changes == self._changes and self._clock.monotonic() - found.since < FRESH_SECONDS:
            return found
        while True:
            found = await self._find(find_present_caller, actor, target, call_id)
            if found.changes == self._changes:
                return found

    async def _find(self, find: _Find, actor: Outsider, target: NamedTarget, call_id: str) -> FoundCaller:
        since, changes = self._clock.monotonic(), self._changes
        found = await self._database.read(find, Rights(actor, self._rules), target, call_id)
        return replace(found, since=since, changes=changes)

    def _note_change(self) -> None:
        self._changes += 1

    async def are_one(self, target: NamedTarget, other: NamedTarget) -> bool:
        """Whether both targets name the same existing session."""
        return await self._database.read(_are_one, target, other)

    async def session_of(self, caller: Caller) -> tuple[Session, Standing]:
        """The caller's current row and standing. Raises `NotFound` if the session was deleted."""
        session, standing = await self._database.read(_find_present, caller)
        if session is None:
            raise NotFound("Session not found: the caller's own session was deleted.")
        return session, standing

    async def held_by(self, found: FoundCaller) -> Classification:
        """All that the session holds by now, and held in the incarnation that the caller was found as."""
        return await self._database.read(_find_held, found.session)

    async def ceiling_of(self, session: Session) -> Classification:
        """What the session may take in."""
        return await self._database.read(find_ceiling, session, self._rules.sinks)

    async def note_use(self, session: Session, left: Classification) -> None:
        """Stores that a call from outside leaves data in the session's workspace, before it does. Contract: flow 8."""
        if session.workspace.join(left) != session.workspace:
            await self._database.run(raise_workspace, session.row, session.id, left, sessions=(session.row,))


async def _find_held(query: Query, found: Session) -> Classification:
    present = await rows.find_by_row(query, found.row)
    if present is None:
        return EVERYTHING  # nobody can tell any more
    if present.id == found.id:
        return present.taint
    ended = await incarnations.find(query, found.id)
    return EVERYTHING if ended is None else present.taint.join(ended.taint)


async def _find_present(query: Query, caller: Caller) -> tuple[Session | None, Standing]:
    return await rows.find_by_row(query, caller.session), await find_standing(query, caller.principal)


async def _are_one(query: Query, target: NamedTarget, other: NamedTarget) -> bool:
    one, another = await look_up(query, target), await look_up(query, other)
    return one is not None and another is not None and one.session.row == another.session.row


async def find_caller(query: Query, rights: Rights, target: NamedTarget, call_id: str) -> FoundCaller:
    """A client outside that begins a call as the session."""
    found = await find_present_caller(query, rights, target, call_id)
    if not takes(found.clearance, found.session.taint):
        # Its answers are made of all that it holds. Contract: flow 3.
        raise Denied(
            f"Session holds data that is not cleared for you: {target_name(target)!r}. An owner can clear you for "
            "it with `antiphon people clear`, or call the tool themselves.",
            code="not_cleared",
        )
    return found


async def find_present_caller(query: Query, rights: Rights, target: NamedTarget, call_id: str) -> FoundCaller:
    """A client outside that acts as the session, whatever the session holds by now."""
    found = await find_session(query, rights, Act.CALL, target)
    session, standing = found.session, await find_standing(query, rights.principal)
    caller = Caller(
        session=session.row,
        agent_id=session.agent_id,
        principal=standing.principal,
        call_id=f"{session.row}:{standing.principal}:{call_id}",
        run=None,
    )
    return FoundCaller(caller, session.depth, standing, session, found.grant.clearance)
