"""`memory`: notes about the person or group of the caller's chat. Contract: checkpoints 2."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from antiphon.domain.agent import Effect
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import NoteId
from antiphon.domain.note import MAX_NOTE_CHARACTERS, Note
from antiphon.engine.access.caller import Caller
from antiphon.engine.memory.calls import Memories
from antiphon.policy.session_tools import MEMORY_TOOL
from antiphon.tools.session_tool import Arguments, ClassifiedAnswer, SessionTool
from antiphon.wire.encoding import milliseconds

DESCRIPTION = (
    "Remembers facts about the person or group of this chat, across conversations and restarts. Add a note when "
    "somebody asks you to remember something, or says what will matter later; update or delete it when it has changed. "
    "The newest and best-matching notes stand at the end of your prompt already; search for others. Other chats do not "
    "see them, and no argument reaches theirs."
)
MAX_LIMIT = 25


class MemoryArguments(Arguments):
    action: Literal["search", "add", "update", "delete"] = Field(description="What to do.")
    query: str | None = Field(None, description="For search: words; without it, the newest notes.")
    id: str | None = Field(None, description="For update and delete: the note's id.")
    text: str | None = Field(
        None, description=f"For add and update: the whole note, at most {MAX_NOTE_CHARACTERS} characters."
    )
    limit: int = Field(10, description="For search: maximum number of notes, 1 to 25.")


_NEEDED = {
    "search": frozenset[str](),
    "add": frozenset({"text"}),
    "update": frozenset({"id", "text"}),
    "delete": frozenset({"id"}),
}


def memory(memories: Memories) -> SessionTool[MemoryArguments]:
    async def carry_out(caller: Caller, arguments: MemoryArguments) -> Mapping[str, Any] | ClassifiedAnswer:
        _check(arguments)
        id, text = NoteId(arguments.id or ""), arguments.text or ""
        match arguments.action:
            case "search":
                limit = min(max(arguments.limit, 1), MAX_LIMIT)
                found = await memories.search(caller, arguments.query, limit=limit)
                notes = [_shown(note) for note in found.notes]
                return ClassifiedAnswer({"status": "ok", "count": len(notes), "notes": notes}, found.made_of)
            case "add":
                changed = await memories.add(caller, text)
            case "update":
                changed = await memories.update(caller, id, text)
            case "delete":
                changed = await memories.delete(caller, id)
        return {"status": "ok", "id": changed.id}

    return SessionTool(
        MEMORY_TOOL,
        DESCRIPTION,
        MemoryArguments,
        carry_out,
        codes=(
            "invalid_note",
            "invalid_query",
            "memory_full",
            "memory_limit",
            "no_memory",
            "not_found",
            "shared_note",
            "write_down",
        ),
        effects=frozenset({Effect.READS, Effect.WRITES}),
    )


def _check(arguments: MemoryArguments) -> None:
    """Raises `Invalid` for a parameter that is missing, or that the action does not have."""
    given = {name for name in ("query", "id", "text") if getattr(arguments, name) is not None}
    needed = _NEEDED[arguments.action]
    allowed = needed | ({"query"} if arguments.action == "search" else set[str]())
    if missing := sorted(needed - given):
        why = f"{arguments.action} needs {' and '.join(missing)}"
    elif more := sorted(given - allowed):
        why = f"{arguments.action} takes no {' and no '.join(more)}"
    else:
        return
    raise Invalid(f"Arguments of {MEMORY_TOOL} do not fit: {why}", code="invalid_arguments")


def _shown(note: Note) -> dict[str, Any]:
    shared = {"shared": True} if note.is_shared else {}
    return {"id": note.id, "text": note.text, "updatedAt": milliseconds(note.updated_at), **shared}
