"""The JSON of notes. Contract: checkpoints 2."""

from collections.abc import Mapping, Sequence

from antiphon.domain.note import Note
from antiphon.wire.encoding import Shape, milliseconds


class NoteShape(Shape, frozen=True, kw_only=True):
    """Something that an agent remembers."""

    note_id: str
    agent_id: str
    text: str
    holder: str
    """Whose note it is: `person:<id>`, `group:<channel>:<type>:<id>`, `session:<number>`, or `everyone` if shared."""
    holder_name: str | None = None
    """What the person is called."""
    shared: bool = False
    """Whether an owner shares it with all chats of the agent."""
    made_by: str
    """`agent`, or the person who wrote its present text."""
    session_key: str | None = None
    """Where it was learnt; absent if that is gone, or if a person wrote it outside of a session."""
    seq: int | None = None
    """The message there."""
    version: int
    """Grows with each change; name it to change the note only if nobody else did meanwhile."""
    created_at: int
    updated_at: int


class NoteList(Shape, frozen=True, kw_only=True):
    count: int
    notes: Sequence[NoteShape]
    next: str | None = None
    """The `before` of the next page; absent on the last."""


def note(found: Note, names: Mapping[str, str]) -> NoteShape:
    """`names` are those of the persons in it."""
    return NoteShape(
        note_id=found.id,
        agent_id=found.agent_id,
        text=found.text,
        holder=found.holder,
        holder_name=names.get(found.holder),
        shared=found.is_shared,
        made_by=found.made_by,
        session_key=found.session_key,
        seq=found.seq if found.session_key is not None else None,
        version=found.version,
        created_at=milliseconds(found.created_at),
        updated_at=milliseconds(found.updated_at),
    )


def named_in(found: Note) -> list[str]:
    """The persons that the shape names."""
    return [found.holder] if found.holder.startswith("person:") else []
