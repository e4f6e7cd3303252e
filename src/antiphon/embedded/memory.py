"""What the agents of an embedded system remember."""

from antiphon.domain.actor import OWNER
from antiphon.domain.ids import AgentId, NoteId
from antiphon.domain.note import Note
from antiphon.domain.person import PersonId
from antiphon.embedded.arguments import checked, rows
from antiphon.embedded.lease import Lease
from antiphon.engine.memory.people import NoteSearch

LISTED = 50


class NoteHandles:
    """`app.memory`."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    @checked
    async def list(
        self,
        *,
        agent_id: str | None = None,
        person_id: str | None = None,
        before: str | None = None,
        limit: int = LISTED,
    ) -> list[Note]:
        """Notes, newest first; `before` is the id of the last one of the previous page."""
        where = NoteSearch(
            agent_id=None if agent_id is None else AgentId(agent_id),
            person=None if person_id is None else PersonId(person_id),
            before=None if before is None else NoteId(before),
        )
        return await self._lease.services.notes.list(OWNER, where, limit=rows(limit))

    @checked
    async def get(self, note_id: str) -> Note:
        """Raises `NotFound`."""
        return await self._lease.services.notes.get(OWNER, NoteId(note_id))

    @checked
    async def add(self, text: str, *, agent_id: str | None = None, shared: bool = False) -> Note:
        """A note of the owner with the agent, or with `shared` one for all its chats; the default agent unless named.

        Raises `Invalid` for a text that is no note, and `Conflict` (`memory_full`).
        """
        services = self._lease.services
        agent = services.rules.default_agent if agent_id is None else AgentId(agent_id)
        return await services.notes.add(OWNER, agent, text, is_shared=shared)

    @checked
    async def update(
        self, note_id: str, text: str | None = None, *, shared: bool = False, version: int | None = None
    ) -> Note:
        """Replaces the text, or shares the note. Raises `NotFound`, `Invalid`, and `Conflict` for another version."""
        return await self._lease.services.notes.change(OWNER, NoteId(note_id), text, is_shared=shared, version=version)

    @checked
    async def delete(self, note_id: str) -> Note:
        """Forgets the note. Raises `NotFound`."""
        return await self._lease.services.notes.delete(OWNER, NoteId(note_id))
