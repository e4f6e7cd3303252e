"""What differs between the APIs: how messages are written, and how an answer's events are read."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import UnionType
from typing import Any, Final, Protocol, TypeVar, Union, cast, get_args, get_origin

import msgspec

from antiphon.agents.text import whole_text
from antiphon.domain.message import (
    MAX_PARTS,
    AssistantMessage,
    ImagePart,
    JsonObject,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResult,
)

USER: Final = "user"
ASSISTANT: Final = "assistant"


class Piece(msgspec.Struct, frozen=True, gc=False):
    """A message, or the blocks of one, as JSON text."""

    role: str
    content: bytes


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

    def join(self, pieces: Sequence[Piece], passing: Piece | None = None) -> bytes:
        """All messages, separated by commas; the last is in no later request, so no cache needs it."""
        ...

    def answer(self) -> "GrowingAnswer": ...


class ErrorEvent(Exception):
    """The provider reports an error inside a stream that began well."""

    def __init__(self, event: bytes) -> None:
        super().__init__("the stream reports an error")
        self.event = event
        """As it was sent, to be classified like an error response."""


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


MAX_NAME: Final = 1_000
"""Characters of a call's id or name. More are no answer of a model."""


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
        self.details: JsonObject | None = None

    def grow(self, *, call_id: str = "", name: str = "", arguments: str = "") -> None:
        """Adds pieces; a name that is repeated is none. Raises `ValueError` if id or name become too long."""
        self.call_id = self.call_id or call_id
        if name != self.name:
            self.name += name
        if arguments:
            self.arguments.append(arguments)
        if max(len(self.call_id), len(self.name)) > MAX_NAME:
            raise ValueError(f"call has an id or a name of more than {MAX_NAME} characters")

    def part(self, provider: str) -> Part | None:
        """None if it has no name, which no provider would take back."""
        if not self.name:
            return None
        return ToolCallPart(
            call_id=whole_text(self.call_id),
            name=whole_text(self.name),
            arguments=whole_text("".join(self.arguments)) or "{}",
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
        self._unseen = 0
        self._provider = provider
        self._parts: list[GrowingText | GrowingCall] = []

    @abstractmethod
    def add(self, data: bytes) -> str:
        """Takes one event's data and returns the text that it adds to the reply.

        Raises `ErrorEvent` if the event reports an error, and `ValueError` if it is not an event of the API or the
        answer becomes too large.
        """

    def take_unseen(self) -> int:
        """How many characters of thoughts and calls were added since the last time."""
        unseen, self._unseen = self._unseen, 0
        return unseen

    def content(self) -> list[Part]:
        return [part for grown in self._parts if (part := grown.part(self._provider)) is not None]

    def _begin(self, part: GrowingT) -> GrowingT:
        if len(self._parts) >= MAX_PARTS:
            raise ValueError(f"answer has more than {MAX_PARTS} parts")
        self._parts.append(part)
        return part


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
