"""The port to a language model: one streamed request at a time."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from antiphon.domain.message import AssistantMessage, Cut, JsonObject, Part, ToolResult, Usage, UserMessage
from antiphon.domain.transcript import Derived


class ToolSchema(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    parameters: JsonObject
    """JSON Schema of the arguments, an object."""


class PromptText(Struct, frozen=True, kw_only=True):
    """Text for the model that no message contains: a summary, a notice. Shown in the user's place."""

    text: str


PromptEntry = UserMessage | AssistantMessage | ToolResult | PromptText


class PromptPurpose(StrEnum):
    """What an answer is for; deterministic models choose their text by it."""

    TURN = "turn"
    COMPACTION = "compaction"
    CHECKPOINT = "checkpoint"


class PromptStage(StrEnum):
    """A turn that no person and no session requested."""

    TURN = "turn"
    """A reply-back turn of an exchange."""
    ANNOUNCE = "announce"
    """The text for a channel: about an exchange, or about a sub-agent's result."""
    CONTINUATION = "continuation"
    """Results of sub-agents have arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Everything that one request sends to a model."""

    instructions: str
    entries: Sequence[PromptEntry]
    """In model order: each assistant message, then the results of its calls, then other entries."""
    passing: str = ""
    """What the runtime remembers, and the names around the conversation, as data. It ends the newest entry and is in no
    later prompt, so that what providers and processes keep of the entries stays valid."""
    tools: Sequence[ToolSchema] = ()
    max_output_tokens: int | None = None
    thinking: str | None = None
    """`off | low | medium | high`; None leaves it to the provider."""
    reads_images: bool = True
    """Whether images are sent; otherwise a note stands in the place of each."""
    purpose: PromptPurpose = PromptPurpose.TURN
    session_key: str = ""
    turn: int = 0
    """Turns that the session completed before this one."""
    step: int = 0
    """Steps that this run has made. Scripted models use these three; no provider receives them."""
    raw_text: str = ""
    """The newest message as it was written, without name prefix or fence; for `offline`."""
    stage: PromptStage | None = None
    """The kind of turn that the message asks for; None for an ordinary one; for `offline`."""
    request_text: str = ""
    """In turns and announce steps, the message that this side was answering when the exchange began; for `offline`."""
    results: Sequence[ToolResult] = ()
    """The tools' results since that message; for `offline`."""
    derived: dict[str, Derived] = field(default_factory=dict[str, Derived], compare=False, repr=False)
    """What the model keeps of earlier prompts of this conversation, by names of its own; see `Transcript.derived`."""


class TextDelta(Struct, frozen=True):
    """A piece of the reply as it streams."""

    text: str
    unseen: int = 0
    """How many characters of thoughts and calls came with it."""


class Completion(Struct, frozen=True, kw_only=True):
    """The whole of one response; always the last item of a stream."""

    content: tuple[Part, ...]
    usage: Usage
    model: str
    """The model name in the provider's answer."""
    cut: Cut | None = None
    """What cut the answer short, if it says so."""


class ModelErrorKind(StrEnum):
    KEY_MISSING = "model_key_missing"
    AUTHENTICATION = "model_authentication"
    NOT_FOUND = "model_not_found"
    RATE_LIMITED = "model_rate_limited"
    CONTEXT_TOO_LONG = "model_context_too_long"
    REFUSED = "model_refused"
    """The provider rejects the request itself (HTTP 400 and the like)."""
    QUOTA = "model_quota"
    """The account at the provider has no credit or no quota left; asking again later today does not help."""
    FILTERED = "model_filtered"
    """The provider's content filter refuses the conversation, or withheld the whole answer."""
    UNREACHABLE = "model_unreachable"
    STALLED = "model_stalled"
    CUT = "model_stream_cut"
    SERVER = "model_server_error"


class RefusedEntry(StrEnum):
    """What of a prompt the provider does not take."""

    IMAGE = "image_unreadable"
    """An image, for what it holds; new ones are suspected first."""
    IMAGES = "images_too_many"
    """Images, for their number or size; the oldest are left out first."""
    ALL_IMAGES = "images_unsupported"
    """The model reads no images."""
    UNKNOWN = "refused"
    """The provider does not say: it may be an entry, the size, or the request itself."""


class ModelError(Exception):
    """A request to a model failed; the message is for people, names the remedy, and never contains a secret."""

    def __init__(
        self,
        kind: ModelErrorKind,
        message: str,
        *,
        retry_after_seconds: float | None = None,
        is_retryable: bool = False,
        entry: RefusedEntry | None = None,
        is_larger: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        self.is_retryable = is_retryable
        self.entry = entry
        """What to leave out, so that the next request is taken."""
        self.is_larger = is_larger
        """Whether it may be for its size: the provider says nothing else, and has taken a smaller one."""


class Model(Protocol):
    """A language model.

    - `stream` makes one request and yields `TextDelta`s and finally exactly one `Completion`; it does not retry.
      A delta without text says that the provider is at work.
    - It raises only `ModelError` for failures of a provider or the network.
    - Cancelling or closing the iterator ends the request.
    - A response that stops in the middle raises `ModelError(CUT)`; the caller keeps the text streamed so far.
    """

    @property
    def name(self) -> str: ...

    @property
    def context_tokens(self) -> int:
        """The size of the context window; 32,000 if it is unknown."""
        ...

    @property
    def is_counted(self) -> bool:
        """Whether its tokens count against the daily cap; False for models that cost nothing."""
        ...

    def stream(self, prompt: Prompt) -> AsyncGenerator[TextDelta | Completion]:
        """The pieces of one response, then the whole. Whoever does not read to the end closes it in the same task."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """How to reach one provider, from the configuration's `providers.<name>`."""

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    stall_seconds: float = 60.0
    """How long a stream may send nothing before it is given up."""
    silence_seconds: float = 600.0
    """How long a stream may send nothing but signs that it is alive before it is given up."""
    first_byte_seconds: float = 60.0
    """How long the first byte of an answer may take."""
    longest_retry_after_seconds: float = 120.0
    """The longest pause before a retry that the provider may ask for."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """How the user's file spells these settings, where it differs."""

    def place(self, provider: str, setting: str) -> str:
        """The setting's name as people read it in errors."""
        return f"providers.{provider}.{self.names.get(setting, setting)}"
