"""What differs between the APIs: how messages are written, and how an answer's events are read."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec

from antiphon.agents.text import whole_text
from antiphon.domain.message import (
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


@dataclass(frozen=True, slots=True)
class Piece:
    """A message, or the blocks of one, as JSON text."""

    role: str
    content: bytes


class AnswerUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one answer; `input_tokens` includes the cached ones and those written to the cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


class GrowingAnswer(Protocol):
    """An answer that grows with the events of its stream."""

    model: str | None
    usage: AnswerUsage | None

    @property
    def is_whole(self) -> bool:
        """Whether the provider said why the answer ends."""
        ...

    def add(self, data: bytes) -> str:
        """Takes one event's data and returns the text that it adds to the reply.

        Raises `ErrorEvent` if the event reports an error, and `ValueError` if it is not an event of the API.
        """
        ...

    def content(self) -> list[Part]: ...


class Dialect(Protocol):
    """One API."""

    path: str
    """Below the base URL."""

    def user(self, content: tuple[Part, ...]) -> Piece | None: ...

    def assistant(self, message: AssistantMessage, call_ids: Sequence[str]) -> Piece | None:
        """`call_ids` has one id for each call of the message."""
        ...

    def result(self, result: ToolResult, call_id: str) -> Piece: ...

    def join(self, pieces: Sequence[Piece], *, is_cached: bool) -> bytes:
        """All messages, separated by commas."""
        ...

    def answer(self) -> GrowingAnswer: ...


class ErrorEvent(Exception):
    """The provider reports an error inside a stream that began well."""

    def __init__(self, event: bytes) -> None:
        super().__init__("the stream reports an error")
        self.event = event
        """As it was sent, to be classified like an error response."""


class Lenient(msgspec.Struct, kw_only=True, gc=False):
    """An event, or a part of one. Fields that are missing, null or unknown are no error: servers differ in them."""


EventT = TypeVar("EventT", bound=Lenient)


def decode_event(kind: type[EventT], data: bytes) -> EventT:
    """Raises `ValueError` if it is no such event, or not JSON."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError:
        # Half of a surrogate pair: an emoji that a provider sends in two events.
        return msgspec.convert(json.loads(data), type=kind)


class GrowingText:
    """A text or thought that arrives in pieces."""

    def __init__(self, *, is_thinking: bool, opaque_id: str | None = None) -> None:
        self.pieces: list[str] = []
        self.is_thinking = is_thinking
        self.opaque_id = opaque_id
        self.signature = ""

    def part(self, provider: str) -> Part | None:
        text = whole_text("".join(self.pieces))
        if not self.is_thinking:
            return TextPart(text=text) if text else None
        return ThinkingPart(text=text, provider=opaque(provider, id=self.opaque_id, signature=self.signature))


class GrowingCall:
    """A tool call whose arguments arrive in pieces."""

    def __init__(self) -> None:
        self.call_id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.details: JsonObject | None = None

    def part(self, provider: str) -> Part:
        return ToolCallPart(
            call_id=self.call_id,
            name=self.name,
            arguments=whole_text("".join(self.arguments)) or "{}",
            provider=opaque(provider, details=self.details),
        )


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
        return cast(JsonObject, msgspec.json.decode(text or "{}", type=dict[str, Any]))
    except (msgspec.MsgspecError, RecursionError):
        return {"INVALID_JSON": text}
