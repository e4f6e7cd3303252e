"""The tools of a checkpoint: they collect what it decides, and change nothing. Contract: checkpoints 2."""

from collections.abc import Sequence

from msgspec.structs import replace

from antiphon.agents.fence import DataFences
from antiphon.agents.model import ToolSchema
from antiphon.domain.classification import Classification
from antiphon.domain.errors import Invalid
from antiphon.domain.message import JsonObject
from antiphon.domain.note import (
    MAX_NOTE_CHARACTERS,
    MAX_SHOWN_BYTES,
    MAX_WORKING_MEMORY_BYTES,
    Note,
    parse_note,
    parse_working_memory,
)
from antiphon.domain.text import DESCRIPTION_LENGTH, one_line
from antiphon.engine.checkpoints.introspector import BegunCheckpoint, DecidedChanges, NoteChange
from antiphon.policy.decision import Deny
from antiphon.policy.memory import decide_change


class CheckpointTools:
    def __init__(
        self, begun: BegunCheckpoint, notes: Sequence[Note], made_of: Classification, fences: DataFences
    ) -> None:
        """`notes` are those that it reads; `made_of` is the join of all that it reads."""
        self._begun = begun
        self._notes = _within(notes)
        self._fences = fences
        self.changes = DecidedChanges(made_of=made_of)
        """What was decided so far."""

    @property
    def schemas(self) -> Sequence[ToolSchema]:
        """A conversation that has ended is described no more, and has no working memory to go on with."""
        ours = (_SET_DESCRIPTION, _SET_WORKING_MEMORY) if self._begun.is_present else ()
        notes = () if self._begun.scope is None else (_ADD_NOTE, _UPDATE_NOTE, _DELETE_NOTE)
        return (*ours, *notes)

    def kept(self) -> str:
        """What is kept so far, as data."""
        kept, lines = self._begun.kept, list[str]()
        if kept.description is not None:
            lines.append(f"Description:\n{self._fenced(kept.description)}")
        if kept.working_memory:
            lines.append(f"Working memory:\n{self._fenced(kept.working_memory)}")
        if self._notes:
            text = "\n".join(f"{note.id}: {note.text}" for note in self._notes)
            lines.append(f"Notes, each with its id:\n{self._fenced(text)}")
        return "\n".join(["What is kept so far:", *lines]) if lines else "Nothing is kept so far."

    def call(self, name: str, arguments: JsonObject) -> str | None:
        """Carries out a call; returns what is wrong with it, or None."""
        schema = next((each for each in self.schemas if each.name == name), None)
        if schema is None:
            return f"Tool not found: {name[:80]!r}."
        required = schema.parameters["required"]
        assert isinstance(required, list)
        if set(arguments) != set(required) or not all(isinstance(each, str) for each in arguments.values()):
            return f"Give exactly these texts: {', '.join(map(str, required))}."
        given = {name: str(value) for name, value in arguments.items()}
        try:
            return self._carry_out(name, given.get("text", ""), given.get("id", ""))
        except Invalid as error:
            return error.message

    def _carry_out(self, name: str, text: str, id: str) -> str | None:
        match name:
            case "set_description":
                return self._describe(parse_working_memory(text))
            case "set_working_memory":
                self.changes = replace(self.changes, working_memory=parse_working_memory(text))
                return None
            case "add_note":
                self._change(NoteChange(text=parse_note(text)))
                return None
            case _:
                return self._change_note(id, None if name == "delete_note" else parse_note(text))

    def _describe(self, text: str) -> str | None:
        line = one_line(text, 10 * DESCRIPTION_LENGTH)
        if not line or len(line) > DESCRIPTION_LENGTH:
            return f"The description has {len(line)} characters; it may have 1 to {DESCRIPTION_LENGTH}."
        self.changes = replace(self.changes, description=line)
        return None

    def _change_note(self, id: str, text: str | None) -> str | None:
        note = next((each for each in self._notes if each.id == id), None)
        if note is None:
            return f"Note not found: {id[:80]!r}. Name one of those shown."
        decision = decide_change(note, self.changes.made_of)
        if isinstance(decision, Deny):
            return decision.reason
        self._change(NoteChange(id=note.id, text=text))
        return None

    def _change(self, change: NoteChange) -> None:
        self.changes = replace(self.changes, notes=(*self.changes.notes, change))

    def _fenced(self, text: str) -> str:
        return self._fences.of_memory(text).around(text)


def _within(notes: Sequence[Note]) -> Sequence[Note]:
    """The newest notes that fit."""
    room, shown = MAX_SHOWN_BYTES, list[Note]()
    for note in notes:
        room -= len(note.text.encode())
        if room < 0:
            break
        shown.append(note)
    return shown


def _schema(name: str, description: str, **properties: str) -> ToolSchema:
    parameters: JsonObject = {
        "type": "object",
        "properties": {each: {"type": "string", "description": said} for each, said in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }
    return ToolSchema(name=name, description=description, parameters=parameters)


_NOTE = f"One fact or wish, at most {MAX_NOTE_CHARACTERS:,} characters."
_SET_DESCRIPTION = _schema(
    "set_description",
    "Says what the conversation is about, for lists of conversations.",
    text=f"At most {DESCRIPTION_LENGTH} characters, one line.",
)
_SET_WORKING_MEMORY = _schema(
    "set_working_memory",
    "Replaces the working memory of the conversation, which the assistant sees in each later turn.",
    text=f"The whole text, at most {MAX_WORKING_MEMORY_BYTES} bytes; empty clears it.",
)
_ADD_NOTE = _schema("add_note", "Adds a note that later conversations see.", text=_NOTE)
_UPDATE_NOTE = _schema("update_note", "Replaces the text of a note.", id="The id of a note that is shown.", text=_NOTE)
_DELETE_NOTE = _schema("delete_note", "Deletes a note that is wrong by now.", id="The id of a note that is shown.")
