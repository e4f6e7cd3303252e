"""Messages: what people, agents and tools said in a session."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

JsonValue: TypeAlias = "None | bool | int | float | str | list[JsonValue] | dict[str, JsonValue]"
JsonObject: TypeAlias = dict[str, JsonValue]


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    TOOL_RESULT = "toolResult"


class ProvenanceKind(StrEnum):
    EXTERNAL = "external"
    INTER_SESSION = "inter_session"
    SCHEDULE = "schedule"
    HOOK = "hook"
    ANNOUNCE = "announce"
    SYNTHETIC = "synthetic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a message came from; only `external` ones are a person's words. Contract: events 1, 2."""

    kind: ProvenanceKind = ProvenanceKind.EXTERNAL
    source_session_key: str | None = None
    source_channel: str | None = None
    source_tool: str | None = None


EXTERNAL = Provenance()
SYNTHETIC = Provenance(kind=ProvenanceKind.SYNTHETIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    text: str
    provider: JsonObject | None = None
    """What the provider wants back with this part (signatures, ids); opaque, only for that provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingPart:
    """A model's reasoning: kept for its provider, never shown on the wire."""

    text: str
    provider: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallPart:
    call_id: str
    """The provider's id, unique only within its message; a call's own name is (message seq, index)."""
    name: str
    arguments: str
    """JSON text exactly as the model wrote it; may be broken, and is validated before use."""
    provider: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePart:
    mime_type: str
    data: str
    """Base64."""


Part: TypeAlias = TextPart | ThinkingPart | ToolCallPart | ImagePart


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """A message posted or appended to a session."""

    message_id: str
    content: tuple[Part, ...]
    sender: str | None = None
    """The display name that the model sees as `[Name]` in groups; absent in direct chats."""
    mentioned: bool = True
    provenance: Provenance = EXTERNAL


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """One step of a model: text and calls."""

    message_id: str
    content: tuple[Part, ...]
    saw: int = 0
    """The last `seq` in the prompt that this answers; log order is not model order."""
    model: str | None = None
    partial: bool = False
    """Cut short by a cancel, a crash or the provider: text only, calls dropped."""
    usage: "Usage" = field(default_factory=lambda: NO_USAGE)
    provenance: Provenance | None = None
    """Set on synthetic ones only, which no model wrote."""

    @property
    def text(self) -> str:
        return text_of(self.content)

    @property
    def calls(self) -> tuple[ToolCallPart, ...]:
        return tuple(part for part in self.content if isinstance(part, ToolCallPart))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The outcome of one call. Contract: runs 8."""

    message_id: str
    call_seq: int
    """The `seq` of the assistant message that called."""
    call_index: int
    """Which of that message's calls, from 0."""
    tool: str
    tool_call_id: str
    content: tuple[Part, ...]
    is_error: bool = False
    details: Mapping[str, JsonValue] | None = None


Message: TypeAlias = UserMessage | AssistantMessage | ToolResult


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and money; sums of steps."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """The part of `input_tokens` that the provider read from its cache."""
    cost_microusd: int | None = None
    """Millionths of a US dollar; None where the model's price is not known."""
    steps: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        costs = [u.cost_microusd for u in (self, other) if u.cost_microusd is not None]
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            sum(costs) if costs else None,
            self.steps + other.steps,
        )


NO_USAGE = Usage()


def text_of(content: tuple[Part, ...]) -> str:
    """The text parts joined, in order."""
    return "".join(part.text for part in content if isinstance(part, TextPart))


def text_content(text: str) -> tuple[Part, ...]:
    """One text part; no part at all for an empty text."""
    return (TextPart(text=text),) if text else ()
