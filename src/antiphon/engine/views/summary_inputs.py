"""A session's view of its own conversation, for a summary of it. Contract: summarize 1, flow 8."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from antiphon.clock import Clock
from antiphon.domain.agent import Agent
from antiphon.domain.classification import Classification, join_all
from antiphon.domain.errors import Limited, NotFound
from antiphon.domain.event import Event, EventType
from antiphon.domain.ids import RunId, SessionId
from antiphon.domain.message import Usage
from antiphon.domain.person import PersonRole
from antiphon.domain.session import Session, SessionType
from antiphon.domain.transcript import Entry, OpenCall, Step, Transcript, Undecided
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.ceilings import find_ceiling
from antiphon.engine.ledger.spending import Spender, SpentToday, day_of, find_spent_today, note_spent
from antiphon.engine.rules import Rules
from antiphon.policy.flow import admitted
from antiphon.policy.session_tools import SUMMARIZE_TOOL
from antiphon.policy.standing import Standing
from antiphon.policy.system import system_grant
from antiphon.store import checkpoints
from antiphon.store import events as log
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Query
from antiphon.store.people import find_roles, find_standing

MOST_EVENTS = 4_000
"""Of a longer conversation the end is read."""
MOST_CALLS = 10
"""Summaries in one run."""
PAGE_EVENTS = 500
NO_RUN = RunId("")


class SummaryScope(StrEnum):
    SESSION = "session"
    TOPIC = "topic"
    """What came after the last successful checkpoint."""


class SummaryInput(Struct, frozen=True, kw_only=True):
    """What a session may see of its own conversation."""

    session: Session
    agent: Agent
    incarnation: SessionId
    entries: Sequence[Entry]
    """In model order, without the step whose calls still run."""
    ceiling: Classification
    roles: Mapping[str, PersonRole]
    """The present roles of owners and users, by their principals."""
    undecided: Undecided
    standing: Standing
    """Of the caller."""

    @property
    def made_of(self) -> Classification:
        return join_all([self.session.base, *(entry.classification for entry in self.entries)])


class _InputRange(Struct, frozen=True):
    session: Session
    incarnation: SessionId
    after: int
    ceiling: Classification


class SummaryInputs:
    def __init__(self, database: Database, rules: Rules, clock: Clock) -> None:
        self._database = database
        self._rules = rules
        self._clock = clock

    async def read(self, caller: Caller, scope: SummaryScope) -> SummaryInput:
        """Raises `NotFound` for a deleted session, `Limited` (`summary_limit`) after many calls in a run."""
        if caller.run is not None and caller.run.count_call(SUMMARIZE_TOOL) > MOST_CALLS:
            raise Limited(
                f"This run made {MOST_CALLS} summaries, which is its limit. Answer with what you know.",
                code="summary_limit",
            )
        found = await self._database.read(_find_range, caller, scope, self._rules)
        transcript, after = Transcript(), found.after
        while events := await self._database.read(_read_page, found, after):
            # A topic is read as it was said: a summary of what came before it is no part of it.
            transcript.add(
                event for event in events if scope is SummaryScope.SESSION or event.type is not EventType.COMPACTED
            )
            after = events[-1].seq
            if len(events) < PAGE_EVENTS:
                break
        run_id = NO_RUN if caller.run is None else caller.run.run.id
        entries = [entry for entry in transcript.prompt_for(run_id) if not _is_at_work(entry)]
        is_group = found.session.source.type is SessionType.GROUP
        roles = await self._database.read(find_roles) if is_group else dict[str, PersonRole]()
        return SummaryInput(
            session=found.session,
            agent=self._rules.agents[caller.agent_id],
            incarnation=found.incarnation,
            entries=list(admitted(entries, found.ceiling)),
            ceiling=found.ceiling,
            roles=roles,
            undecided=transcript.undecided,
            standing=await self._database.read(find_standing, caller.principal),
        )

    async def spent_today(self, caller: Caller) -> SpentToday:
        day, spender = day_of(self._clock.now_ms()), Spender(caller.agent_id, caller.principal, caller.session)
        return await self._database.read(find_spent_today, day, spender, self._rules.person_caps)

    async def note_usage(self, caller: Caller, usage: Usage) -> None:
        """Adds to the sums of the day what a call from outside used; a run notes it with the call's result."""
        if caller.run is None:
            spender = Spender(caller.agent_id, caller.principal, caller.session)
            await self._database.run(note_spent, spender, usage, sessions=(caller.session,))


async def _find_range(query: Query, caller: Caller, scope: SummaryScope, rules: Rules) -> _InputRange:
    session = await rows.find_by_row(query, caller.session)
    if session is None:
        raise NotFound("Session not found: the caller's own session was deleted.")
    run = None if caller.run is None else caller.run.run
    incarnation = SessionId(session.id if run is None else run.session_id)
    after = session.last_seq - MOST_EVENTS
    if scope is SummaryScope.TOPIC:
        checkpoint = await checkpoints.find(query, incarnation)
        after = max(after, 0 if checkpoint is None else checkpoint.through_seq)
    place = None if run is None else run.place
    ceiling = await find_ceiling(query, session, rules.sinks, place=place)
    return _InputRange(session, incarnation, max(after, 0), ceiling)


async def _read_page(query: Query, found: _InputRange, after: int) -> list[Event]:
    grant = system_grant(found.session.row)
    return await log.read_incarnation_after(query, grant, found.incarnation, after, limit=PAGE_EVENTS)


def _is_at_work(entry: Entry) -> bool:
    return isinstance(entry, Step) and any(isinstance(result, OpenCall) for result in entry.results)
