"""What a checkpoint reads of its log, and notes of its usage. Contract: checkpoints 1, flow 2."""

from collections.abc import Mapping

from antiphon.clock import Clock
from antiphon.domain.event import Event
from antiphon.domain.ids import RunId
from antiphon.domain.message import Usage
from antiphon.domain.note import Note, ReadableNotes
from antiphon.domain.person import PersonRole
from antiphon.domain.transcript import Transcript
from antiphon.engine.checkpoints.introspector import BegunCheckpoint, ReadEntries
from antiphon.engine.checkpoints.steps import UsedByCheckpoint, note_usage
from antiphon.engine.ledger.fence import Fenced
from antiphon.engine.ledger.spending import SpentToday, day_of, find_spent_today
from antiphon.engine.memory.notes import find_notes
from antiphon.policy.caps import PersonCaps
from antiphon.policy.flow import admitted
from antiphon.policy.system import system_grant
from antiphon.store import events as log
from antiphon.store.database import Database, Query
from antiphon.store.people import find_roles, find_standing

MOST_EVENTS = 4_000
"""Of a longer range the end is read."""
PAGE_EVENTS = 500
MOST_NOTES = 50
NO_RUN = RunId("")


class BegunCheckpointReader:
    """Implements `CheckpointReader` for one claim."""

    def __init__(self, database: Database, begun: BegunCheckpoint, person_caps: PersonCaps, clock: Clock) -> None:
        self._database = database
        self._begun = begun
        self._person_caps = person_caps
        self._clock = clock

    async def read_entries(self) -> ReadEntries:
        transcript = Transcript()
        after = max(self._begun.after, self._begun.through - MOST_EVENTS)
        while events := await self._database.read(_read_page, self._begun, after):
            transcript.add(event for event in events if event.seq <= self._begun.through)
            after = events[-1].seq
            if len(events) < PAGE_EVENTS or after >= self._begun.through:
                break
        entries = list(admitted(transcript.prompt_for(NO_RUN), self._begun.ceiling))
        standing = await self._database.read(find_standing, self._begun.spender.principal)
        return ReadEntries(entries, transcript.undecided, standing)

    async def read_roles(self) -> Mapping[str, PersonRole]:
        """The present roles of owners and users, by their principals."""
        return await self._database.read(find_roles)

    async def read_notes(self) -> list[Note]:
        scope = self._begun.scope
        if scope is None:
            return []
        readable = ReadableNotes(scope, self._begun.ceiling)
        return await self._database.read(find_notes, readable, (), MOST_NOTES)

    async def spent_today(self) -> SpentToday:
        day = day_of(self._clock.now_ms())
        return await self._database.read(find_spent_today, day, self._begun.spender, self._person_caps)

    async def note_usage(self, usage: Usage, model: str, *, is_counted: bool) -> None:
        used = UsedByCheckpoint(usage=usage, model=model, is_counted=is_counted, at_ms=self._clock.now_ms())
        sessions = (self._begun.session.row,)
        if not await self._database.run(note_usage, self._begun, used, sessions=sessions):
            raise Fenced


async def _read_page(query: Query, begun: BegunCheckpoint, after: int) -> list[Event]:
    grant = system_grant(begun.session.row)
    return await log.read_incarnation_after(query, grant, begun.incarnation, after, limit=PAGE_EVENTS)
