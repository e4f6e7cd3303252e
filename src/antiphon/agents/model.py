"""The port to a language model: one streamed request at a time."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from antiphon.domain.message import AssistantMessage, JsonObject, Part, ToolResult, Usage, UserMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSchema:
    name: str
    description: str
    parameters: JsonObject
    """JSON Schema of the arguments, an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptText:
    """Text for the model that no message holds: a summary, a notice. Shown in the user's place."""

    text: str


PromptEntry = UserMessage | AssistantMessage | ToolResult | PromptText


class PromptPurpose(StrEnum):
    """What an answer is for; deterministic models tell by it what to say."""

    TURN = "turn"
    COMPACTION = "compaction"


class PromptStage(StrEnum):
    """A turn that no person's or session's request asks for."""

    TURN = "turn"
    """A reply-back turn of an exchange."""
    ANNOUNCE = "announce"
    """What a channel is told: of an exchange, or of a sub-agent's result."""
    CONTINUATION = "continuation"
    """Results of sub-agents have come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """All that a model is told in one request."""

    instructions: str
    entries: Sequence[PromptEntry]
    """In model order: each assistant message is followed by the results of its calls, then others."""
    tools: Sequence[ToolSchema] = ()
    max_output_tokens: int | None = None
    thinking: str | None = None
    """`off | low | medium | high`; None leaves it to the provider."""
    purpose: PromptPurpose = PromptPurpose.TURN
    session_key: str = ""
    turn: int = 0
    """Turns of the session that were completed before this one."""
    step: int = 0
    """Steps that this run has made. These three are for scripted models; never sent to a provider."""
    raw_text: str = ""
    """The newest message as it was written, without name prefix or fence; for `offline`."""
    stage: PromptStage | None = None
    """What kind of turn that message asks for, if no ordinary one; for `offline`."""
    request_text: str = ""
    """In turns and announce steps: the message that this side was answering when the exchange began; for `offline`."""
    results: Sequence[ToolResult] = ()
    """The tools' results since that message; for `offline`."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the reply as it streams."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The whole of one response; always the last thing a stream yields."""

    content: tuple[Part, ...]
    usage: Usage
    model: str
    """The name the provider answered with."""


class ModelErrorKind(StrEnum):
    KEY_MISSING = "model_key_missing"
    AUTHENTICATION = "model_authentication"
    NOT_FOUND = "model_not_found"
    RATE_LIMITED = "model_rate_limited"
    CONTEXT_TOO_LONG = "model_context_too_long"
    REFUSED = "model_refused"
    """The provider rejects the request itself (HTTP 400 and the like)."""
    UNREACHABLE = "model_unreachable"
    STALLED = "model_stalled"
    CUT = "model_stream_cut"
    SERVER = "model_server_error"


class ModelError(Exception):
    """A request to a model failed; the message is for people and names the remedy, never a secret."""

    def __init__(
        self,
        kind: ModelErrorKind,
        message: str,
        *,
        retry_after_seconds: float | None = None,
        is_retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        self.is_retryable = is_retryable


class Model(Protocol):
    """A language model.

    - `stream` makes one request and yields `TextDelta`s and at last exactly one `Completion`; it does not retry.
    - It raises `ModelError` and nothing else for what a provider or the network does.
    - Cancelling or closing the iterator ends the request.
    - A response that stops in the middle raises `ModelError(CUT)`; what had streamed is the caller's to keep.
    """

    @property
    def name(self) -> str: ...

    @property
    def context_tokens(self) -> int:
        """The size of the context window; 32,000 where it is not known."""
        ...

    @property
    def is_counted(self) -> bool:
        """Whether its tokens count against the daily cap; False for models that cost nothing to ask."""
        ...

    def stream(self, prompt: Prompt) -> AsyncIterator[TextDelta | Completion]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """How to reach one provider, from the configuration's `providers.<name>`."""

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    stall_seconds: float = 60.0
    """A stream that sends nothing for this long is given up."""
