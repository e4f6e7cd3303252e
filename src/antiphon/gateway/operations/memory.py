"""Operations on notes, for those whom they concern. Contract: checkpoints 2."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from antiphon.domain.ids import AgentId, NoteId
from antiphon.domain.note import Note
from antiphon.domain.person import PersonId
from antiphon.domain.tokens import TokenScope
from antiphon.engine.memory.people import NoteSearch
from antiphon.gateway.operations.operation import Http, OperationRequest, Params, TargetKind, operation
from antiphon.gateway.operations.sessions import Limit
from antiphon.wire import notes as wire

MAX_LIMIT = 200
Id = Annotated[str, Meta(min_length=1, max_length=200)]


class ListNotes(Params, frozen=True, kw_only=True):
    limit: Limit = 50
    before: Id | None = None
    """The last note of the page before."""
    agent_id: str | None = None
    person_id: str | None = None
    """Only the notes of this person."""


class NamedNote(Params, frozen=True, kw_only=True):
    note_id: Id


class AddNote(Params, frozen=True, kw_only=True):
    text: str
    agent_id: str | None = None
    """The default agent unless set."""
    shared: bool = False
    """Whether all chats of the agent have it; only for owners."""


class UpdateNote(NamedNote, frozen=True, kw_only=True):
    text: str | None = None
    shared: bool = False
    """Shares the note with all chats of its agent; only for owners."""
    version: Annotated[int, Meta(ge=1, lt=10**15)] | None = None
    """The version that was read: the note is changed only if it is still that one."""


@operation("memory.list", "GET /memory", scope=TokenScope.READ)
async def list_notes(request: OperationRequest, params: ListNotes) -> wire.NoteList:
    """Lists what agents remember of the caller, and of groups in which they take part; for owners everybody's notes."""
    limit = min(max(params.limit, 1), MAX_LIMIT)
    where = NoteSearch(
        agent_id=None if params.agent_id is None else AgentId(params.agent_id),
        person=None if params.person_id is None else PersonId(params.person_id),
        before=None if params.before is None else NoteId(params.before),
    )
    found = await request.services.notes.list(request.principal, where, limit=limit + 1)
    page = await _shown(request, found[:limit])
    return wire.NoteList(count=len(page), notes=page, next=page[-1].note_id if len(found) > limit else None)


@operation("memory.get", "GET /memory/{note_id}", scope=TokenScope.READ, target=TargetKind.NOTE)
async def get_note(request: OperationRequest, params: NamedNote) -> wire.NoteShape:
    """Returns one note."""
    return await _one(request, await request.services.notes.get(request.principal, NoteId(params.note_id)))


@operation("memory.add", Http("POST /memory", statuses={201: "The new note."}), scope=TokenScope.WRITE)
async def add_note(request: OperationRequest, params: AddNote) -> wire.NoteShape:
    """Adds a note of the caller, which the agent sees in their direct chats; `shared` by an owner, in all chats."""
    agent = request.services.rules.default_agent if params.agent_id is None else AgentId(params.agent_id)
    return await _one(
        request, await request.services.notes.add(request.principal, agent, params.text, is_shared=params.shared)
    )


@operation("memory.update", "PATCH /memory/{note_id}", scope=TokenScope.WRITE, target=TargetKind.NOTE)
async def update_note(request: OperationRequest, params: UpdateNote) -> wire.NoteShape:
    """Corrects a note of the caller, or shares it. Agents see the new text from their next runs on."""
    changed = await request.services.notes.change(
        request.principal, NoteId(params.note_id), params.text, is_shared=params.shared, version=params.version
    )
    return await _one(request, changed)


@operation("memory.delete", "DELETE /memory/{note_id}", scope=TokenScope.WRITE, target=TargetKind.NOTE)
async def delete_note(request: OperationRequest, params: NamedNote) -> wire.NoteShape:
    """Forgets a note of the caller, and returns it. Conversations in which it was said keep their words."""
    return await _one(request, await request.services.notes.delete(request.principal, NoteId(params.note_id)))


async def _one(request: OperationRequest, note: Note) -> wire.NoteShape:
    return (await _shown(request, [note]))[0]


async def _shown(request: OperationRequest, notes: Sequence[Note]) -> list[wire.NoteShape]:
    names = await request.services.names.read(name for each in notes for name in wire.named_in(each))
    return [wire.note(each, names) for each in notes]
