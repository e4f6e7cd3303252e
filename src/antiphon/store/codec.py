"""Between rows and nouns: JSON text, milliseconds, bit masks. The only module that knows stored JSON."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from antiphon.domain.classification import PUBLIC, Classification, Integrity, Level
from antiphon.domain.event import Event, NewEvent
from antiphon.domain.keys import parse_key
from antiphon.domain.message import (
    EXTERNAL,
    AssistantMessage,
    ImagePart,
    JsonObject,
    Message,
    Part,
    Provenance,
    ProvenanceKind,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResult,
    Usage,
    UserMessage,
)
from antiphon.store.database import Row, SqlValue

_INTEGRITIES = (Integrity.TRUSTED, Integrity.UNTRUSTED)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_decode: Callable[[str], Any] = json.JSONDecoder().decode


def json_text(value: object) -> str:
    return _encode(value)


def json_object(text: str) -> JsonObject:
    return _decode(text)


def milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def moment(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


stored_key = lru_cache(maxsize=4096)(parse_key)
"""The key of stored text, which was canonical when it was stored."""


def optional_moment(ms: int | None) -> datetime | None:
    return None if ms is None else moment(ms)


def classification(level: int, compartments: int, integrity: int) -> Classification:
    if level == 0 and compartments == 0 and integrity == 0:
        return PUBLIC
    return Classification(Level(level), compartments, _INTEGRITIES[integrity])


def classification_values(value: Classification) -> tuple[int, int, int]:
    """For columns level, compartments, integrity."""
    return int(value.level), value.compartments, _INTEGRITIES.index(value.integrity)


def usage(row: Row) -> Usage:
    """From the columns input_tokens, output_tokens, cached_tokens, cost_microusd, steps."""
    return Usage(*row)


EVENT_COLUMNS = "session, seq, incarnation, type, created_at, actor, run_id, level, compartments, integrity, payload"


def event_from_row(row: Row) -> Event:
    session, seq, incarnation, kind, created_at, actor, run_id, level, compartments, integrity, payload = row
    data = _decode(payload)
    encoded = data.pop("message", None)
    return Event(
        session=session,
        seq=seq,
        session_id=incarnation,
        type=kind,
        created_at=moment(created_at),
        actor=actor,
        run_id=run_id,
        classification=classification(level, compartments, integrity),
        message=None if encoded is None else _MESSAGE_DECODERS[encoded["role"]](encoded),
        data=data,
    )


def event_values(event: NewEvent) -> tuple[SqlValue, ...]:
    """Values for type, role, actor, run_id, message_id, level, compartments, integrity, payload."""
    message, data = event.message, event.data
    payload: dict[str, Any] = {} if data is None else dict(data)
    role = message_id = None
    if message is not None:
        encoded = encode_message(message)
        role = encoded["role"]
        payload["message"] = encoded
        if isinstance(message, UserMessage) or (isinstance(message, AssistantMessage) and message.provenance):
            message_id = message.message_id
    return (
        event.type.value,
        role,
        event.actor,
        event.run_id,
        message_id,
        *classification_values(event.classification),
        _encode(payload),
    )


def encode_message(message: Message) -> dict[str, Any]:
    match message:
        case UserMessage():
            encoded: dict[str, Any] = {
                "role": "user",
                "id": message.message_id,
                "content": _parts(message.content),
            }
            if message.sender is not None:
                encoded["sender"] = message.sender
            if not message.mentioned:
                encoded["mentioned"] = False
            if message.provenance != EXTERNAL:
                encoded["provenance"] = _provenance(message.provenance)
        case AssistantMessage():
            encoded = {
                "role": "assistant",
                "id": message.message_id,
                "content": _parts(message.content),
                "saw": message.saw,
                "model": message.model,
            }
            if message.partial:
                encoded["partial"] = True
            if message.usage.steps:
                u = message.usage
                encoded["usage"] = [
                    u.input_tokens,
                    u.output_tokens,
                    u.cached_tokens,
                    u.cost_microusd,
                    u.steps,
                ]
            if message.provenance is not None:
                encoded["provenance"] = _provenance(message.provenance)
        case ToolResult():
            encoded = {
                "role": "toolResult",
                "id": message.message_id,
                "call": [message.call_seq, message.call_index],
                "tool": message.tool,
                "callId": message.tool_call_id,
                "content": _parts(message.content),
            }
            if message.is_error:
                encoded["isError"] = True
            if message.details is not None:
                encoded["details"] = dict(message.details)
    return encoded


def _parts(content: tuple[Part, ...]) -> list[dict[str, Any]]:
    encoded: list[dict[str, Any]] = []
    for part in content:
        match part:
            case TextPart():
                item: dict[str, Any] = {"text": part.text}
            case ToolCallPart():
                item = {"call": part.name, "id": part.call_id, "arguments": part.arguments}
            case ThinkingPart():
                item = {"thinking": part.text}
            case ImagePart():
                item = {"image": part.mime_type, "data": part.data}
        if not isinstance(part, ImagePart) and part.provider:
            item["provider"] = part.provider
        encoded.append(item)
    return encoded


def _content(items: list[dict[str, Any]]) -> tuple[Part, ...]:
    return tuple(_part(item) for item in items)


def _part(item: dict[str, Any]) -> Part:
    provider = item.get("provider")
    if "text" in item:
        return TextPart(text=item["text"], provider=provider)
    if "call" in item:
        return ToolCallPart(call_id=item["id"], name=item["call"], arguments=item["arguments"], provider=provider)
    if "thinking" in item:
        return ThinkingPart(text=item["thinking"], provider=provider)
    return ImagePart(mime_type=item["image"], data=item["data"])


def _provenance(provenance: Provenance) -> dict[str, Any]:
    fields = {
        "kind": provenance.kind.value,
        "sessionKey": provenance.source_session_key,
        "channel": provenance.source_channel,
        "tool": provenance.source_tool,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _provenance_of(encoded: dict[str, Any] | None) -> Provenance | None:
    if encoded is None:
        return None
    return Provenance(
        kind=ProvenanceKind(encoded["kind"]),
        source_session_key=encoded.get("sessionKey"),
        source_channel=encoded.get("channel"),
        source_tool=encoded.get("tool"),
    )


def _user_message(encoded: dict[str, Any]) -> UserMessage:
    return UserMessage(
        message_id=encoded["id"],
        content=_content(encoded["content"]),
        sender=encoded.get("sender"),
        mentioned=encoded.get("mentioned", True),
        provenance=_provenance_of(encoded.get("provenance")) or EXTERNAL,
    )


def _assistant_message(encoded: dict[str, Any]) -> AssistantMessage:
    return AssistantMessage(
        message_id=encoded["id"],
        content=_content(encoded["content"]),
        saw=encoded["saw"],
        model=encoded["model"],
        partial=encoded.get("partial", False),
        usage=Usage(*encoded["usage"]) if "usage" in encoded else Usage(),
        provenance=_provenance_of(encoded.get("provenance")),
    )


def _tool_result(encoded: dict[str, Any]) -> ToolResult:
    call_seq, call_index = encoded["call"]
    return ToolResult(
        message_id=encoded["id"],
        call_seq=call_seq,
        call_index=call_index,
        tool=encoded["tool"],
        tool_call_id=encoded["callId"],
        content=_content(encoded["content"]),
        is_error=encoded.get("isError", False),
        details=encoded.get("details"),
    )


_MESSAGE_DECODERS: dict[str, Callable[[dict[str, Any]], Message]] = {
    "user": _user_message,
    "assistant": _assistant_message,
    "toolResult": _tool_result,
}
