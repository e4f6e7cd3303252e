"""Messages, events and pages of them. Contract: events 1, 3, gateway 1."""

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from antiphon.domain.classification import NO_COMPARTMENTS, PUBLIC, Classification, Compartments
from antiphon.domain.event import Event
from antiphon.domain.message import (
    EXTERNAL,
    AssistantMessage,
    Attribution,
    AttributionKind,
    Citation,
    CitationKind,
    Cut,
    ExchangeStage,
    ExchangeStep,
    ImagePart,
    Part,
    Provenance,
    ProvenanceKind,
    ReportStage,
    ReportStep,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResult,
    UserMessage,
    Whose,
)
from antiphon.policy.flow import is_public
from antiphon.wire.encoding import Shape, compact_json, milliseconds


class TextShape(Shape, frozen=True, kw_only=True, tag="text", tag_field="type"):
    text: str


class ToolCallShape(Shape, frozen=True, kw_only=True, tag="toolCall", tag_field="type"):
    id: str
    name: str
    arguments: Any


class ImageShape(Shape, frozen=True, kw_only=True, tag="image", tag_field="type"):
    mime_type: str
    bytes: int
    data: str | None = None
    """Base64."""
    omitted: bool | None = None


Content: TypeAlias = TextShape | ToolCallShape | ImageShape


class ProvenanceShape(Shape, frozen=True, kw_only=True):
    """The origin of a message that no person wrote here."""

    kind: ProvenanceKind
    source_session_key: str | None = None
    source_channel: str | None = None
    source_tool: str | None = None


class AttributionShape(Shape, frozen=True, kw_only=True):
    """Whose words a message holds that are not its sender's."""

    kind: AttributionKind
    name: str | None = None
    """The author's name, as the platform shows it."""


class CitationShape(Shape, frozen=True, kw_only=True):
    """Words that a message points at."""

    kind: CitationKind
    whose: Whose
    text: str
    name: str | None = None
    """The name of somebody else, as the platform shows it."""


class ExchangeShape(Shape, frozen=True, kw_only=True):
    """The place of a message in its exchange."""

    id: str
    stage: ExchangeStage
    turn: int | None = None
    of: int | None = None


class ReportShape(Shape, frozen=True, kw_only=True):
    """The place of a message in a child's report."""

    id: str
    stage: ReportStage
    answers: Sequence[str] | None = None


class ClassificationShape(Shape, frozen=True, kw_only=True):
    """A classification that is not public."""

    level: str
    compartments: Sequence[str] = ()
    """Names of the compartments that it belongs to."""
    integrity: str
    person: str | None = None
    """Whose data it is: `person:<id>`, or `people` for several persons."""


class MessageShape(Shape, frozen=True, kw_only=True):
    """A message of a transcript."""

    seq: int
    message_id: str
    role: Role
    content: Sequence[Content]
    created_at: int
    run_id: str | None = None
    sender: str | None = None
    author: str | None = None
    """The present name of the person who wrote it; missing in a home with one person."""
    model: str | None = None
    partial: bool | None = None
    cut: Cut | None = None
    """What cut an answer short; missing if it is whole."""
    tool_call_id: str | None = None
    tool_name: str | None = None
    is_error: bool | None = None
    provenance: ProvenanceShape | None = None
    attribution: AttributionShape | None = None
    """Set if the words are not the sender's: a forward, an inline bot's, a quote."""
    cites: Sequence[CitationShape] | None = None
    """What it points at: the message that it answers, a quote, a forward beside it."""
    exchange: ExchangeShape | None = None
    report: ReportShape | None = None
    classification: ClassificationShape | None = None
    unreadable: bool | None = None
    """True if its stored form is damaged; the content says so."""


class EventShape(Shape, frozen=True, kw_only=True):
    """Any event of the log, as `…/events` and `…/transcript` show it."""

    seq: int
    type: str
    created_at: int
    actor: str
    actor_name: str | None = None
    """The present name of that person; missing in a home with one person."""
    session_id: str
    run_id: str | None = None
    data: dict[str, Any] | None = None
    message: MessageShape | None = None
    classification: ClassificationShape | None = None
    """What it was made of; absent for data that may go anywhere, and beside a message, which says so itself."""
    unreadable: bool | None = None
    """True if its stored form is damaged."""


class EndingShape(Shape, frozen=True, kw_only=True):
    """The end of a run that failed, took too long or was cancelled."""

    seq: int
    run_id: str | None = None
    status: str
    error: str | None = None
    code: str | None = None
    created_at: int


class HistoryShape(Shape, frozen=True, kw_only=True):
    """A page of messages, oldest first."""

    session_key: str
    session_id: str
    """The id of the incarnation that was read."""
    messages: Sequence[MessageShape]
    endings: Sequence[EndingShape] | None = None
    """Runs among these messages that failed, took too long or were cancelled."""
    has_more: bool
    truncated: bool
    dropped_messages: bool
    content_truncated: bool
    content_redacted: bool
    bytes: int
    """The size of the messages as a JSON array."""
    next_cursor: str | None = None


def classification(value: Classification, compartments: Compartments) -> ClassificationShape | None:
    """None for public data. Compartments without a name here are left out."""
    if value is PUBLIC or value == PUBLIC:
        return None
    return ClassificationShape(
        level=value.level.name,
        compartments=tuple(compartments.names_of(value.compartments & compartments.mask)),
        integrity=value.integrity.wire,
        person=value.person,
    )


def message(
    event: Event,
    *,
    with_images: bool = True,
    author: str | None = None,
    compartments: Compartments = NO_COMPARTMENTS,
) -> MessageShape:
    """A transcript message. `event` holds one."""
    body = event.message
    assert body is not None
    return MessageShape(
        seq=event.seq,
        message_id=body.message_id,
        role=body.role,
        content=_parts(body.content, with_images=with_images),
        created_at=milliseconds(event.created_at),
        run_id=event.run_id,
        author=author,
        classification=classification(event.classification, compartments),
        unreadable=event.is_unreadable or None,
        **_own_fields(body),
    )


def ending(event: Event) -> EndingShape:
    """`event` is the end of a run."""
    error, code = event.data.get("error"), event.data.get("code")
    return EndingShape(
        seq=event.seq,
        run_id=event.run_id,
        status=str(event.data.get("status")),
        error=None if error is None else str(error),
        code=None if code is None else str(code),
        created_at=milliseconds(event.created_at),
    )


def _own_fields(body: UserMessage | AssistantMessage | ToolResult) -> dict[str, Any]:
    """The fields that only messages of its role have."""
    match body:
        case UserMessage():
            return {
                "sender": body.sender,
                "provenance": None if body.provenance == EXTERNAL else _provenance(body.provenance),
                "attribution": None if body.attribution is None else _attribution(body.attribution),
                "cites": [_citation(each) for each in body.cites] or None,
                "exchange": None if body.exchange is None else _exchange(body.exchange),
                "report": None if body.report is None else _report(body.report),
            }
        case AssistantMessage():
            return {
                "model": body.model,
                "partial": body.partial or None,
                "cut": body.cut,
                "provenance": _provenance(body.provenance) if body.provenance else None,
            }
        case ToolResult():
            return {
                "tool_call_id": body.tool_call_id,
                "tool_name": body.tool,
                "is_error": body.is_error or None,
                "provenance": _provenance(body.provenance) if body.provenance else None,
            }


def _parts(content: Sequence[Part], *, with_images: bool) -> list[Content]:
    parts = (_part(part, with_images=with_images) for part in content)
    return [part for part in parts if part is not None]


def _part(part: Part, *, with_images: bool) -> Content | None:
    match part:
        case TextPart():
            return TextShape(text=part.text)
        case ToolCallPart():
            return ToolCallShape(id=part.call_id, name=part.name, arguments=arguments(part.arguments))
        case ImagePart():
            size = len(part.data) // 4 * 3 - part.data[-2:].count("=")
            if with_images:
                return ImageShape(mime_type=part.mime_type, bytes=size, data=part.data)
            return ImageShape(mime_type=part.mime_type, bytes=size, omitted=True)
        case ThinkingPart():
            return None


def arguments(text: str) -> object:
    """The object that the model meant, or its raw text if JSON cannot represent it."""
    try:
        value = json.loads(text or "{}", parse_constant=_refuse)
        json.dumps(value, allow_nan=False)
        compact_json(value)
    except (ValueError, RecursionError):
        return text
    return value


def _refuse(constant: str) -> object:
    raise ValueError(f"No JSON number: {constant!r}")


def _provenance(provenance: Provenance) -> ProvenanceShape:
    return ProvenanceShape(
        kind=provenance.kind,
        source_session_key=provenance.source_session_key,
        source_channel=provenance.source_channel,
        source_tool=provenance.source_tool,
    )


def _attribution(attribution: Attribution) -> AttributionShape:
    return AttributionShape(kind=attribution.kind, name=attribution.name)


def _citation(citation: Citation) -> CitationShape:
    return CitationShape(kind=citation.kind, whose=citation.whose, text=citation.text, name=citation.name)


def _exchange(step: ExchangeStep) -> ExchangeShape:
    is_turn = step.turn > 0
    return ExchangeShape(
        id=step.id, stage=step.stage, turn=step.turn if is_turn else None, of=step.of if is_turn else None
    )


def _report(step: ReportStep) -> ReportShape:
    return ReportShape(id=step.id, stage=step.stage, answers=step.answers or None)


def event(event: Event, actor_name: str | None, compartments: Compartments = NO_COMPARTMENTS) -> EventShape:
    says_itself = event.message is not None or is_public(event.classification)
    return EventShape(
        seq=event.seq,
        type=event.type,
        created_at=milliseconds(event.created_at),
        actor=event.actor,
        actor_name=actor_name,
        session_id=event.session_id,
        run_id=event.run_id,
        data=event.data or None,
        message=None if event.message is None else message(event, compartments=compartments),
        classification=None if says_itself else classification(event.classification, compartments),
        unreadable=event.is_unreadable or None,
    )
