"""The tools of a checkpoint: they collect what it decides, and change nothing. Contract: checkpoints 2."""

from collections.abc import Sequence

from msgspec.structs import replace

from antiphon.agents.fence import DataFences
from antiphon.agents.model import ToolSchema
from antiphon.domain.message import JsonObject
from antiphon.domain.text import DESCRIPTION_LENGTH, one_line
from antiphon.engine.checkpoints.introspector import BegunCheckpoint, Changes

MAX_WORKING_MEMORY_BYTES = 4096


class CheckpointTools:
    def __init__(self, begun: BegunCheckpoint, fences: DataFences) -> None:
        self._begun = begun
        self._fences = fences
        self.changes = Changes()
        """What was decided so far."""

    @property
    def schemas(self) -> Sequence[ToolSchema]:
        """The conversation that has ended is described no more, and has no working memory to go on with."""
        return [_SET_DESCRIPTION, _SET_WORKING_MEMORY] if self._begun.is_present else []

    def kept(self) -> str:
        """What is kept so far, as data."""
        session, lines = self._begun.session, list[str]()
        if self._begun.is_present and session.description is not None:
            lines.append(f"Description:\n{self._fenced(session.description)}")
        if self._begun.working_memory:
            lines.append(f"Working memory:\n{self._fenced(self._begun.working_memory)}")
        return "\n".join(["What is kept so far:", *lines]) if lines else "Nothing is kept so far."

    def call(self, name: str, arguments: JsonObject) -> str | None:
        """Carries out a call; returns what is wrong with it, or None."""
        if name not in {schema.name for schema in self.schemas}:
            return f"Tool not found: {name[:80]!r}."
        match name:
            case "set_description":
                return self._set_description(arguments)
            case _:
                return self._set_working_memory(arguments)

    def _set_description(self, arguments: JsonObject) -> str | None:
        text = _text(arguments, "text")
        if text is None:
            return "Give the description as 'text', and nothing else."
        line = one_line(text, 10 * DESCRIPTION_LENGTH)
        if not line or len(line) > DESCRIPTION_LENGTH:
            return f"The description has {len(line)} characters; it may have 1 to {DESCRIPTION_LENGTH}."
        self.changes = replace(self.changes, description=line)
        return None

    def _set_working_memory(self, arguments: JsonObject) -> str | None:
        text = _text(arguments, "text")
        if text is None:
            return "Give the whole working memory as 'text', and nothing else."
        size = len(text.encode())
        if size > MAX_WORKING_MEMORY_BYTES:
            return f"The text has {size} bytes; it may have at most {MAX_WORKING_MEMORY_BYTES}."
        self.changes = replace(self.changes, working_memory=text)
        return None

    def _fenced(self, text: str) -> str:
        return self._fences.of_summary(text).around(text)


def _text(arguments: JsonObject, name: str) -> str | None:
    value = arguments.get(name)
    return value if isinstance(value, str) and set(arguments) == {name} and _is_whole(value) else None


def _is_whole(text: str) -> bool:
    """Whether it holds no half of a surrogate pair, which could not be stored."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _schema(name: str, description: str, **properties: str) -> ToolSchema:
    parameters: JsonObject = {
        "type": "object",
        "properties": {each: {"type": "string", "description": said} for each, said in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }
    return ToolSchema(name=name, description=description, parameters=parameters)


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
