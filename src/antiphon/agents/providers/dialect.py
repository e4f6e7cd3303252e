"""What differs between the APIs: how messages are written, and how an answer's events are read."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import UnionType
from typing import Any, Final, Protocol, TypeVar, Union, cast, get_args, get_origin

import msgspec

from antiphon.agents.providers.thought_tags import ThoughtTags
from antiphon.agents.text import whole_text
from antiphon.domain.message import (
    MAX_PARTS,
    AssistantMessage,
    Cut,
    ImagePart,
    JsonObject,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResult,
)

TAGGED: Final = "content"
"""The id of a thought that came between tags in the text; others have the name of their field."""
USER: Final = "user"
ASSISTANT: Final = "assistant"
TOOL: Final = "tool"
"""The role of a tool's result, where that is no message of the user."""


class Piece(msgspec.Struct, frozen=True, gc=False):
    """A message, or the blocks of one, as JSON text."""

    role: str
    content: bytes


def begins_anew(before: str, role: str) -> bool:
    """Whether a piece after one of that role is joined to it by a comma alone, in every dialect."""
    return before != role and (before, role) != (TOOL, USER)


class AnswerUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one answer; `input_tokens` includes the cached ones and those written to the cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


class Dialect(Protocol):
    """One API."""

    def user(self, content: tuple[Part, ...]) -> Piece | None: ...

    def assistant(self, message: AssistantMessage, call_ids: Sequence[str]) -> Piece | None:
        """`call_ids` has one id for each call of the message."""
        ...

    def result(self, result: ToolResult, call_id: str) -> Piece: ...

    def join(self, pieces: Sequence[Piece], passing: str = "") -> bytes:
        """All messages, separated by commas, so that users and assistants alternate, as many models' templates want.

        Where `begins_anew` says so, the pieces before and those after may be joined each alone. `passing` ends the last
        message of the user or of a tool. No later request has it, so no cache needs it.
        """
        ...

    def answer(self) -> "GrowingAnswer": ...


class ErrorEvent(Exception):
    """The provider reports an error inside a stream that began well."""

    def __init__(self, event: bytes) -> None:
        super().__init__("the stream reports an error")
        self.event = event
        """As it was sent, to be classified like an error response."""


class AnswerTooLarge(ValueError):
    """The answer is larger than any that can be kept; another attempt would be, too."""


class Lenient(msgspec.Struct, kw_only=True, gc=False):
    """An event, or a part of one. Fields that are missing, null, unknown or of another type are no error."""


EventT = TypeVar("EventT", bound=Lenient)


def decode_event(kind: type[EventT], data: bytes) -> EventT:
    """Raises `ValueError` if it is not a JSON object."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError:
        # Half of a surrogate pair, since some send an emoji in two events; or a field of another type.
        value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("event is no JSON object")
    return _struct_from(kind, cast("dict[str, object]", value))


def _struct_from(kind: type[EventT], value: Mapping[str, object]) -> EventT:
    """The fields that fit, or can be made to."""
    fields = msgspec.structs.fields(kind)
    return kind(**{field.name: _fitting(field.type, value.get(field.encode_name)) for field in fields})


def _fitting(kind: Any, value: object) -> Any:
    """The value as one of the kinds, such as `list[X] | None`; None if it fits none."""
    kinds: tuple[Any, ...] = get_args(kind) if get_origin(kind) in (UnionType, Union) else (kind,)
    for each in kinds:
        if isinstance(each, type) and issubclass(each, Lenient):
            if isinstance(value, dict):
                return _struct_from(each, cast("dict[str, object]", value))
        elif get_origin(each) is list and isinstance(value, list):
            found = [_fitting(get_args(each)[0], item) for item in cast("list[object]", value)]
            return [item for item in found if item is not None]
        elif value is not None:
            with suppress(msgspec.ValidationError):
                return msgspec.convert(value, cast("type[Any]", each), strict=False)
    return None


MOST_TOKENS: Final = 2**53


def tokens(now: int | None, before: int = 0) -> int:
    """A count of tokens that a provider sent, within bounds; the one before if it sent none."""
    return before if now is None else min(max(now, 0), MOST_TOKENS)


_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
LONGEST_NAME: Final = 64
"""Characters of a tool's name that every provider takes."""


def safe_name(name: str) -> str:
    """The name of a call as every provider takes it back, whatever the model wrote."""
    return _UNSAFE.sub("_", name[:LONGEST_NAME]) or "_"


MAX_NAME: Final = 1_000
"""Characters of a call's id or name; what follows is dropped, as no tool has such a name."""


class GrowingText:
    """A text or thought that arrives in pieces."""

    def __init__(self, *, is_thinking: bool, opaque_id: str | None = None) -> None:
        self.pieces: list[str] = []
        self.is_thinking = is_thinking
        self.opaque_id = opaque_id
        self.signatures: list[str] = []

    def part(self, provider: str) -> Part | None:
        text = whole_text("".join(self.pieces))
        if not self.is_thinking:
            return TextPart(text=text) if text else None
        return ThinkingPart(
            text=text, provider=opaque(provider, id=self.opaque_id, signature=whole_text("".join(self.signatures)))
        )


class GrowingCall:
    """A tool call whose arguments arrive in pieces."""

    def __init__(self) -> None:
        self.call_id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.without_arguments = "{}"
        self.details: JsonObject | None = None

    def grow(self, *, call_id: str = "", name: str = "", arguments: str = "") -> None:
        """Adds pieces; a name that is repeated is none."""
        self.call_id = self.call_id or call_id[:MAX_NAME]
        if name and name != self.name:
            self.name = (self.name + name[:MAX_NAME])[:MAX_NAME]
        if arguments:
            self.arguments.append(arguments)

    def part(self, provider: str) -> Part | None:
        """None if it has no name, which no provider would take back."""
        if not self.name:
            return None
        return ToolCallPart(
            call_id=whole_text(self.call_id),
            name=whole_text(self.name),
            arguments=whole_text("".join(self.arguments)) or self.without_arguments,
            provider=opaque(provider, details=self.details),
        )


GrowingT = TypeVar("GrowingT", GrowingText, GrowingCall)


class GrowingAnswer(ABC):
    """An answer that grows with the events of its stream."""

    def __init__(self, provider: str) -> None:
        self.model: str | None = None
        self.usage: AnswerUsage | None = None
        self.is_whole = False
        """Whether the provider said why the answer ends."""
        self.is_ended = False
        """Whether the provider said that nothing more comes; what comes is then ignored."""
        self.cut: Cut | None = None
        """What cut the answer short, by the provider's own words."""
        self._unseen = 0
        self._provider = provider
        self._parts: list[GrowingText | GrowingCall] = []
        self._tags = ThoughtTags()

    @abstractmethod
    def add(self, data: bytes, *, is_whole_body: bool = False) -> str:
        """Takes one event's data and returns the text that it adds to the reply.

        `is_whole_body` says that it is a whole answer, from a server that does not stream. Raises `ErrorEvent` if the
        event reports an error, `AnswerTooLarge`, and another `ValueError` if it is not an event of the API.
        """

    def end(self) -> str:
        """The text that was held back; nothing more comes."""
        calls = [part for part in self._parts if isinstance(part, GrowingCall)]
        if self.cut is not None and calls and not calls[-1].arguments:
            calls[-1].without_arguments = "{"  # it was cut before them; nobody may take it for a call without any
        words, thought = self._tags.end(is_whole_answer=self.cut is None and not calls)
        if thought:
            self._parts = [part for part in self._parts if not _is_tagged(part)]
        if words:
            self._text(is_thinking=False).pieces.append(words)
        return words

    def _say(self, text: str) -> str:
        """Adds a piece of the text, or of a thought between tags, and returns what is words."""
        if self._tags.is_over:
            if text:
                last = self._parts[-1] if self._parts else None
                if not isinstance(last, GrowingText) or last.is_thinking:
                    last = self._text(is_thinking=False)
                last.pieces.append(text)
            return text
        said: list[str] = []
        for piece, is_thought in self._tags.add(text):
            self._text(is_thinking=is_thought, opaque_id=TAGGED if is_thought else None).pieces.append(piece)
            if is_thought:
                self._unseen += len(piece)
            else:
                said.append(piece)
        return "".join(said)

    def _think(self, thought: str, field: str) -> None:
        self._text(is_thinking=True, opaque_id=field).pieces.append(thought)
        self._unseen += len(thought)

    def _text(self, *, is_thinking: bool, opaque_id: str | None = None) -> GrowingText:
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, GrowingText) or (last.is_thinking, last.opaque_id) != (is_thinking, opaque_id):
            last = self._begin(GrowingText(is_thinking=is_thinking, opaque_id=opaque_id))
        return last

    def take_unseen(self) -> int:
        """How many characters of thoughts and calls were added since the last time."""
        unseen, self._unseen = self._unseen, 0
        return unseen

    def content(self) -> list[Part]:
        return [part for grown in self._parts if (part := grown.part(self._provider)) is not None]

    def _begin(self, part: GrowingT) -> GrowingT:
        if len(self._parts) >= MAX_PARTS:
            raise AnswerTooLarge(f"answer has more than {MAX_PARTS} parts")
        self._parts.append(part)
        return part


def _is_tagged(part: GrowingText | GrowingCall) -> bool:
    return isinstance(part, GrowingText) and part.opaque_id == TAGGED


def opaque(
    provider: str, *, id: str | None = None, signature: str | None = None, details: JsonObject | None = None
) -> JsonObject | None:
    """The `provider` field of a part; None if there is nothing to send back."""
    fields: JsonObject = {"id": id, "signature": signature, "details": details}
    kept: JsonObject = {key: value for key, value in fields.items() if value}
    return {"provider": provider, **kept} if kept else None


def kept_fields(part: Part, provider: str) -> JsonObject | None:
    """What the provider gave with the part, if it is this provider."""
    if isinstance(part, ImagePart) or not part.provider or part.provider.get("provider") != provider:
        return None
    return part.provider


def arguments_of(text: str) -> JsonObject:
    """The arguments of a call as an object, which every provider requires, also if the model wrote none."""
    try:
        found = cast(JsonObject, msgspec.json.decode(text or "{}", type=dict[str, Any]))
        msgspec.json.encode([[[[[[[[[[[[[[[[found]]]]]]]]]]]]]]]])  # also inside a message it is not nested too deeply
        return found
    except (msgspec.MsgspecError, RecursionError):
        return {"INVALID_JSON": text}
