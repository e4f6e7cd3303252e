"""Messages: texts of people, agents and tools in a session.

These nouns, events, runs and sessions are `msgspec.Struct`s: every page creates dozens, and they cost a
tenth of a frozen dataclass (docs/decisions/0001).
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from antiphon.domain.decided import DecidedEntry
from antiphon.domain.errors import Invalid, TooLarge
from antiphon.domain.invisible import is_blank
from antiphon.domain.text import bracketed_name, one_line, plain

if TYPE_CHECKING:
    JsonValue: TypeAlias = "None | bool | int | float | str | list[JsonValue] | dict[str, JsonValue]"
else:
    JsonValue = Any  # recursive aliases cannot be read at run time
JsonObject: TypeAlias = dict[str, JsonValue]

MAX_TEXT_BYTES = 1024 * 1024
"""Bytes of one text, in UTF-8."""
MAX_PARTS = 1_000
"""Parts of one message."""


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
    HARNESS = "harness"
    """An external harness carried the call out itself, and told afterwards what came of it."""


class Provenance(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where a message came from; only `external` messages are a person's words. Contract: events 1, 2."""

    kind: ProvenanceKind = ProvenanceKind.EXTERNAL
    source_session_key: str | None = None
    source_channel: str | None = None
    source_tool: str | None = None


class AttributionKind(StrEnum):
    """How words of somebody else come to be in a message."""

    FORWARD = "forward"
    """The sender passed a message on, or a channel did so by itself."""
    INLINE_BOT = "inline_bot"
    """A bot made the message, and the sender chose it."""
    QUOTE = "quote"


class Attribution(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Whose words a message holds, if they are not its sender's: they are data, and nobody vouches for them.

    Contract: groups 5.
    """

    kind: AttributionKind
    name: str | None = None
    """The author's name as the platform shows it, chosen by the author; None if it is hidden."""

    @property
    def for_people(self) -> str:
        """What it is, in a few words."""
        what, of = _ATTRIBUTIONS[self.kind]
        return what if self.name is None else f"{what} {of} {bracketed_name(self.name)}"


_ATTRIBUTIONS = {
    AttributionKind.FORWARD: ("forwarded", "from"),
    AttributionKind.INLINE_BOT: ("made by an inline bot", "called"),
    AttributionKind.QUOTE: ("quoted", "from"),
}


class CitationKind(StrEnum):
    """Why words stand with a message that points at them."""

    REPLY = "reply"
    """The message answers them."""
    QUOTE = "quote"
    """The message answers a message, and they are the part of it that its sender chose."""
    FORWARD = "forward"
    """Its sender passed them on beside it."""


class Whose(StrEnum):
    """Whose words a citation holds."""

    AGENT = "agent"
    """This agent's, or Antiphon's own, as they were sent to the same chat."""
    SENDER = "sender"
    """Those of the message's own sender, from before."""
    OTHER = "other"
    """Somebody else's: data, and nobody vouches for them."""


LONGEST_SHOWN = 80
"""Characters of the words that people see with a message that points at them."""


class Citation(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Words that a message points at. They stand with it in prompts, as context. Contract: groups 5."""

    kind: CitationKind
    whose: Whose
    text: str
    name: str | None = None
    """The name of somebody else, as the platform shows it; None if it is hidden."""

    @property
    def for_people(self) -> str:
        """What it is, in a few words, and how it begins."""
        begin = one_line(plain(self.text), LONGEST_SHOWN)
        words = f": “{begin}”" if begin else ""
        if self.kind is CitationKind.FORWARD:
            return f"with a forward{'' if self.name is None else f' from {bracketed_name(self.name)}'}{words}"
        of = {Whose.AGENT: "the agent", Whose.SENDER: "their own words"}.get(self.whose)
        return f"in answer to {of or bracketed_name(self.name or 'somebody')}{words}"


EXTERNAL = Provenance()
SYNTHETIC = Provenance(kind=ProvenanceKind.SYNTHETIC)
OF_HARNESS = Provenance(kind=ProvenanceKind.HARNESS)
OF_DECISIONS = Provenance(kind=ProvenanceKind.SYNTHETIC, source_tool="approvals")
"""Of the message that tells a parked run how its calls were decided."""


class ExchangeStage(StrEnum):
    """The role of a message in the exchange to which it belongs."""

    REQUEST = "request"
    TURN = "turn"
    """The other side's words, for a reply-back turn."""
    ANNOUNCE = "announce"
    """Request, first and latest reply, as three parts, for the announce step."""
    RECORD = "record"
    """Words that arrived when nothing waited for them; they start no run."""


class ExchangeStep(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The place of a message in its exchange. Contract: send 4 to 6."""

    id: str
    stage: ExchangeStage
    turn: int = 0
    of: int = 0
    """The last allowed turn."""
    asked_by: str | None = None
    """The requester's run that sent the request."""


class ReportStage(StrEnum):
    """The role of a message in the result that a child owes to its requester."""

    TASK = "task"
    """The child's task."""
    STEER = "steer"
    """A further message to the child, while it owes that result."""
    RECORD = "record"
    """The child's result: three texts, the result in the middle."""
    CONTINUATION = "continuation"
    """Only the notice that the log contains records with which the session is to continue."""
    ANNOUNCE = "announce"
    """The record again, for the child that words the text for the requester's channel."""


class ReportStep(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The place of a message in a report. Contract: spawn 7."""

    id: str
    stage: ReportStage
    answers: tuple[str, ...] = ()
    """The reports with which the run that this message starts continues; empty if it starts no run."""
    is_continued: bool = False
    """Whether that run continues one that ended to wait for these reports."""
    attachments: str | None = None
    """For a task: the directory of its files in the workspace."""


def step_for_people(stage: str, turn: int, of: int, source: str) -> str:
    """Describes a message of an exchange in a few words; `source` is the other session."""
    match stage:
        case ExchangeStage.TURN:
            return f"turn {turn} of {of} with {source}"
        case ExchangeStage.ANNOUNCE:
            return f"what to announce about the exchange with {source}"
        case _:
            return f"{stage} from {source}"


def report_for_people(stage: str, source: str, task: str | None = None) -> str:
    """Describes a message between a session and its child in a few words; `source` is its author.

    `task` is the name of the task whose result it is.
    """
    match stage:
        case ReportStage.RECORD if task is not None:
            return f"from task {task}"
        case ReportStage.RECORD:
            return f"result of {source}"
        case ReportStage.CONTINUATION:
            return "results arrived"
        case ReportStage.ANNOUNCE:
            return f"what to announce to {source}"
        case _:
            return f"{stage} from {source}"


class TextPart(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="text", tag_field="type", gc=False):
    text: str
    provider: JsonObject | None = None
    """Data that the provider wants back with this part (signatures, ids); opaque, only for that provider."""


class ThinkingPart(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="thinking", tag_field="type", gc=False):
    """A model's reasoning: kept for its provider, never shown on the wire."""

    text: str
    provider: JsonObject | None = None


class ToolCallPart(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="call", tag_field="type", gc=False):
    call_id: str
    """The provider's id, unique only within its message; a call's own name is (message seq, index)."""
    name: str
    arguments: str
    """JSON text exactly as the model wrote it; may be broken, and is validated before use."""
    provider: JsonObject | None = None


class ImagePart(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="image", tag_field="type", gc=False):
    mime_type: str
    data: str
    """Base64."""


Part: TypeAlias = TextPart | ThinkingPart | ToolCallPart | ImagePart


class Usage(Struct, frozen=True, array_like=True, gc=False):
    """Tokens and money; sums of steps."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """The part of `input_tokens` that the provider read from its cache."""
    cost_microusd: int | None = None
    """Millionths of a US dollar; None if the model's price is unknown."""
    steps: int = 0
    estimated_tokens: int = 0
    """The part of the tokens that is estimated, because the provider counted none."""

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
            self.estimated_tokens + other.estimated_tokens,
        )


NO_USAGE = Usage()


class Cut(StrEnum):
    """What cut an answer short. Contract: runs 2."""

    LENGTH = "length"
    """A limit on its tokens, ours or the provider's."""
    FILTER = "filter"
    """The provider's content filter."""
    REFUSAL = "refusal"
    """The model declined to go on."""
    STREAM = "stream"
    """The connection or the provider failed in the middle."""


class UserMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="user", tag_field="role", gc=False):
    """A message posted or appended to a session."""

    message_id: str
    content: tuple[Part, ...]
    sender: str | None = None
    """The display name that the model sees as `[Name]` in groups; absent in direct chats."""
    mentioned: bool = True
    provenance: Provenance = EXTERNAL
    attribution: Attribution | None = None
    """Whose words it holds; None for the sender's own."""
    cites: tuple[Citation, ...] = ()
    """What it points at, in order."""
    quoted: str = ""
    """What the sender's program repeated of earlier messages; no prompt shows it."""
    is_dated: bool = False
    """Whether its author said when it was written."""
    exchange: ExchangeStep | None = None
    report: ReportStep | None = None

    @property
    def role(self) -> Role:
        return Role.USER

    @property
    def text(self) -> str:
        """The text parts joined."""
        return text_of(self.content)

    @property
    def has_foreign_words(self) -> bool:
        """Whether words in it, or beside it, are somebody else's."""
        return self.attribution is not None or any(each.whose is Whose.OTHER for each in self.cites)


class AssistantMessage(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag="assistant", tag_field="role", gc=False
):
    """One step of a model: text and calls."""

    message_id: str
    content: tuple[Part, ...]
    saw: int = 0
    """The last `seq` in the prompt for this answer; log order is not model order."""
    model: str | None = None
    partial: bool = False
    """Cut short by a cancel, a crash or the provider: text only, calls dropped."""
    cut: Cut | None = None
    """What cut the text short; None if it is whole, or was cut by a cancel or a crash."""
    usage: Usage = NO_USAGE
    provenance: Provenance | None = None
    """Set only on synthetic messages, which no model wrote."""
    decided: tuple[DecidedEntry, ...] = ()
    """What rules said of what its prompt was the first to hold."""
    is_undecided: bool = False
    """Whether it keeps no such decisions, so that those entries are decided about before they stand in a prompt again:
    it is cut short, or no prompt was made for it."""

    @property
    def role(self) -> Role:
        return Role.ASSISTANT

    @property
    def text(self) -> str:
        """The text parts joined, without the model's reasoning."""
        return text_of(self.content)

    @property
    def calls(self) -> tuple[ToolCallPart, ...]:
        return tuple(part for part in self.content if isinstance(part, ToolCallPart))


class ToolResult(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="toolResult", tag_field="role", gc=False):
    """The outcome of one call. Contract: runs 8."""

    message_id: str
    call_seq: int
    """The `seq` of the assistant message with the call."""
    call_index: int
    """Which of that message's calls, from 0."""
    tool: str
    tool_call_id: str
    content: tuple[Part, ...]
    is_error: bool = False
    provenance: Provenance | None = None
    """Set only on results of calls that no run of ours has carried out."""
    details: JsonObject | None = None

    @property
    def role(self) -> Role:
        return Role.TOOL_RESULT

    @property
    def text(self) -> str:
        """The text parts joined."""
        return text_of(self.content)


Message: TypeAlias = UserMessage | AssistantMessage | ToolResult


def text_of(content: tuple[Part, ...]) -> str:
    """The text parts joined, in order."""
    if len(content) == 1 and isinstance(part := content[0], TextPart):
        return part.text
    return "".join(part.text for part in content if isinstance(part, TextPart))


def is_text_too_large(text: str) -> bool:
    """Whether the text exceeds `MAX_TEXT_BYTES`; reads no more of it than necessary."""
    if 4 * len(text) <= MAX_TEXT_BYTES or text.isascii():
        return len(text) > MAX_TEXT_BYTES
    return len(text) > MAX_TEXT_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT_BYTES


def text_content(text: str) -> tuple[Part, ...]:
    """One text part; no part at all for an empty text."""
    return (TextPart(text=text),) if text else ()


def check_content(content: tuple[Part, ...]) -> None:
    """Raises `Invalid` for a message that shows nothing, and `TooLarge` for too many parts or too long texts."""
    if all(isinstance(part, TextPart) and is_blank(part.text) for part in content):
        raise Invalid("Message is empty. Write some text.", code="empty_message")
    if len(content) > MAX_PARTS:
        raise TooLarge(f"Message has more than {MAX_PARTS} parts. Send several messages.", code="too_many_parts")
    for place, part in enumerate(content):
        if isinstance(part, TextPart) and is_text_too_large(part.text):
            raise TooLarge(
                f"Text of part {place + 1} is larger than {MAX_TEXT_BYTES} bytes. Send a shorter text, or several.",
                code="text_too_large",
            )
