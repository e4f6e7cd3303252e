"""The view of memory: what agents remember, to be corrected and forgotten."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from markupsafe import Markup
from msgspec import Meta, Struct

from antiphon.domain.ids import AgentId, NoteId
from antiphon.domain.note import EVERYONE, MAX_NOTE_CHARACTERS, Note
from antiphon.domain.person import PersonId
from antiphon.domain.text import plain
from antiphon.engine.memory.people import NoteSearch
from antiphon.gateway.operations.operation import OperationRequest, Params
from antiphon.gateway.page.page_view import page_view
from antiphon.gateway.page.rendering import render
from antiphon.gateway.page.titles import titles_of
from antiphon.policy.acts import Act

SHOWN = 50
Id = Annotated[str, Meta(min_length=1, max_length=200)]


class ShowMemory(Params, frozen=True, kw_only=True):
    agent: Id | None = None
    person: Id | None = None
    before: Id | None = None
    """The last note of the page before."""


class NoteRow(Struct, frozen=True, kw_only=True):
    id: NoteId
    text: str
    holder: str
    """Whose note it is, for people."""
    agent: str
    is_shared: bool
    may_change: bool
    session_key: str | None
    """Where it was learnt, if it still exists."""
    seq: int | None
    version: int
    updated_at: datetime


@page_view("memory", "Memory", act=Act.REMEMBER)
async def show_memory(request: OperationRequest, params: ShowMemory) -> Markup:
    """What agents remember of the reader, and of others for owners, each with its form."""
    where = NoteSearch(
        agent_id=None if params.agent is None else AgentId(params.agent),
        person=None if params.person is None else PersonId(params.person),
        before=None if params.before is None else NoteId(params.before),
    )
    found = await request.services.notes.list(request.principal, where, limit=SHOWN + 1)
    shown = found[:SHOWN]
    may_share = await request.services.people.may(request.principal, Act.SHARE)
    titles = titles_of(request.gateway)
    values = {
        "notes": await _rows(request, shown, may_share=may_share),
        "next": shown[-1].id if len(found) > SHOWN else None,
        "filter": {name: value for name in ("agent", "person") if (value := getattr(params, name)) is not None},
        "may_share": may_share,
        "agents": [(agent.id, titles.agent(agent.id)) for agent in request.services.rules.agents.values()],
        "longest": MAX_NOTE_CHARACTERS,
    }
    return render("memory.html", values)


async def _rows(request: OperationRequest, notes: Sequence[Note], *, may_share: bool) -> list[NoteRow]:
    titles, reader = titles_of(request.gateway), str(request.principal)
    names = await request.services.names.read(note.holder for note in notes if note.holder.startswith("person:"))
    return [
        NoteRow(
            id=note.id,
            text=plain(note.text),
            holder=_holder(note, reader, names.get(note.holder)),
            agent=titles.agent(note.agent_id),
            is_shared=note.is_shared,
            may_change=may_share or note.holder == reader,
            session_key=note.session_key,
            seq=note.seq,
            version=note.version,
            updated_at=note.updated_at,
        )
        for note in notes
    ]


def _holder(note: Note, reader: str, name: str | None) -> str:
    if note.holder == reader:
        return "You"
    if note.holder == EVERYONE:
        return "Shared with all chats"
    kind, _, rest = note.holder.partition(":")
    match kind:
        case "group":
            channel, _, id = rest.partition(":")
            return plain(f"Group {id.partition(':')[2]} on {channel}")
        case "session":
            return "One session alone"
        case _:
            return plain(name or rest)
