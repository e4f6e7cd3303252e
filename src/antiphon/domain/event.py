"""Events: past facts in a session's log, numbered 1..n without gaps. Contract: events 1."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct, field

from antiphon.domain.classification import PUBLIC, Classification, Integrity
from antiphon.domain.ids import RunId, SessionId, SessionRow
from antiphon.domain.message import (
    NO_USAGE,
    AssistantMessage,
    JsonObject,
    JsonValue,
    Message,
    ToolResult,
    Usage,
    UserMessage,
    text_content,
)


class EventType(StrEnum):
    SESSION_STARTED = "session_started"
    USER_MESSAGE = "user_message"
    ASSISTANT_MESSAGE = "assistant_message"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    RUN_STARTED = "run_started"
    RUN_FINISHED = "run_finished"
    APPROVAL_REQUESTED = "approval_requested"
    APPROVAL_RESOLVED = "approval_resolved"
    INTROSPECTION_STARTED = "introspection_started"
    INTROSPECTION_FINISHED = "introspection_finished"
    COMPACTED = "compacted"
    LEFT_OUT = "left_out"
    """Prompts show a note in the place of what the provider refused; see `LeftOutEntries`."""
    STEP_FINISHED = "step_finished"
    """A runner keeps the result of a step of its own: `key` or `name`, and `result`."""
    STATE_SAVED = "state_saved"
    """A runner keeps a text for its next runs in the session; `bytes` of it."""
    USAGE_REPORTED = "usage_reported"
    """A runner says what a model used: `model`, with the event's usage."""
    DELIVERED = "delivered"
    DELIVERY_SUPPRESSED = "delivery_suppressed"
    DELIVERY_REDACTED = "delivery_redacted"
    """Rules took something out of a text before it was sent; `text` is what goes."""
    TAINT_RAISED = "taint_raised"
    SESSION_CHANGED = "session_changed"
    PLAN_CHANGED = "plan_changed"
    """A harness has said what it is about to do: `entries`, the whole plan each time."""
    HARNESS_UPDATE = "harness_update"
    """A harness has said something for which there is no event: `update`, as it came."""
    ERROR = "error"


UNREADABLE = "[This entry cannot be read: its stored form is damaged.]"
"""Stands in the place of what an entry said."""


class Event(Struct, frozen=True, gc=False):
    """One stored fact. The three message types set `message`; `data` holds the rest."""

    session: SessionRow
    seq: int
    session_id: SessionId
    type: str
    """An `EventType`, or an unchanged word of a newer version."""
    created_at: datetime
    actor: str
    """A principal's text, or `agent`."""
    run_id: RunId | None = None
    classification: Classification = PUBLIC
    message: Message | None = None
    data: JsonObject = field(default_factory=dict[str, JsonValue])
    is_unreadable: bool = False
    """Whether its stored form is damaged: a message then says so, and `data` is empty."""
    own_integrity: Integrity = Integrity.TRUSTED
    """The integrity of what it brought itself; its classification also has what it inherited from its prompt."""


def is_bad_end(event: Event) -> bool:
    """Whether it is the end of a run that failed, took too long or was cancelled."""
    return event.type == EventType.RUN_FINISHED and event.data.get("status") != "ok"


class NewEvent(Struct, frozen=True, gc=False):
    """An event without a number yet."""

    type: EventType
    actor: str
    classification: Classification
    """How the data that it was made from is classified. Contract: flow 2."""
    run_id: RunId | None = None
    message: Message | None = None
    data: JsonObject | None = None
    is_addressed: bool = False
    """Whether the message can be found by its id, because its sender chose the id."""
    occurred_at: datetime | None = None
    """When it happened, if not when it is stored."""
    usage: Usage = NO_USAGE
    """The usage of an event other than an assistant message, which has its own."""
    own_integrity: Integrity | None = None
    """The integrity of what it brings itself; None for all that its classification says."""


def user_event(
    message: UserMessage,
    *,
    actor: str,
    run_id: RunId | None,
    classification: Classification,
    is_addressed: bool = False,
) -> NewEvent:
    return NewEvent(
        type=EventType.USER_MESSAGE,
        actor=actor,
        run_id=run_id,
        classification=classification,
        message=message,
        is_addressed=is_addressed,
    )


def stand_in(type: str, seq: int) -> Message | None:
    """The message in the place of one that cannot be read; None for an event of another type."""
    message_id, content = f"unreadable-{seq}", text_content(UNREADABLE)
    match type:
        case EventType.USER_MESSAGE:
            return UserMessage(message_id=message_id, content=content)
        case EventType.ASSISTANT_MESSAGE:
            return AssistantMessage(message_id=message_id, content=content, saw=seq - 1, is_undecided=True)
        case EventType.TOOL_RESULT:
            return ToolResult(
                message_id=message_id, call_seq=0, call_index=0, tool="unknown", tool_call_id="unknown", content=content
            )
        case _:
            return None
