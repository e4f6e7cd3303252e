"""OpenAI's chat completions, which most providers speak."""

from collections.abc import Sequence
from typing import Final, cast

import msgspec

from antiphon.agents.providers.dialect import (
    ASSISTANT,
    USER,
    AnswerUsage,
    ErrorEvent,
    GrowingAnswer,
    GrowingCall,
    GrowingText,
    Lenient,
    Piece,
    arguments_of,
    decode_event,
    kept_fields,
)
from antiphon.domain.message import (
    AssistantMessage,
    ImagePart,
    JsonObject,
    JsonValue,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResult,
    text_of,
)

TAGGED: Final = "content"
"""The id of a thought that came between tags in the text; others have the name of their field."""
OPENING, CLOSING = "<think>", "</think>"
DONE: Final = b"[DONE]"


class ChatDialect:
    """Requests and streams of `/chat/completions`."""

    path = "/chat/completions"

    def __init__(self, provider: str) -> None:
        self._provider = provider

    def user(self, content: tuple[Part, ...]) -> Piece:
        if not any(isinstance(part, ImagePart) for part in content):
            return _piece(USER, {"role": "user", "content": text_of(content)})
        parts: list[JsonValue] = []
        for part in content:
            match part:
                case TextPart(text=text):
                    parts.append({"type": "text", "text": text})
                case ImagePart(mime_type=mime_type, data=data):
                    url = f"data:{mime_type};base64,{data}"
                    parts.append({"type": "image_url", "image_url": {"url": url}})
                case _:
                    pass
        return _piece(USER, {"role": "user", "content": parts})

    def assistant(self, message: AssistantMessage, call_ids: Sequence[str]) -> Piece | None:
        texts: list[str] = []
        thoughts: dict[str, list[str]] = {}
        calls: list[JsonValue] = []
        for part in message.content:
            kept = kept_fields(part, self._provider)
            match part:
                case TextPart(text=text) if text:
                    texts.append(text)
                case ThinkingPart(text=text) if kept is not None:
                    field = str(kept.get("id") or TAGGED)
                    if field == TAGGED:
                        texts.append(f"{OPENING}\n{text}\n{CLOSING}")
                    else:
                        thoughts.setdefault(field, []).append(text)
                case ToolCallPart(name=name, arguments=arguments):
                    call: JsonObject = {
                        "id": call_ids[len(calls)],
                        "type": "function",
                        "function": {"name": name, "arguments": msgspec.json.encode(arguments_of(arguments)).decode()},
                    }
                    extra = cast(JsonObject, kept.get("details") or {}) if kept is not None else {}
                    calls.append(call | {key: extra[key] for key in ("extra_content",) if key in extra})
                case _:
                    pass
        if not texts and not calls:
            return None
        sent: JsonObject = {"role": "assistant", "content": "\n\n".join(texts) or None}
        sent |= {field: "\n\n".join(found) for field, found in thoughts.items()}
        if calls:
            sent["tool_calls"] = calls
        return _piece(ASSISTANT, sent)

    def result(self, result: ToolResult, call_id: str) -> Piece:
        return _piece(USER, {"role": "tool", "tool_call_id": call_id, "content": text_of(result.content)})

    def join(self, pieces: Sequence[Piece], *, is_cached: bool) -> bytes:
        return b",".join([piece.content for piece in pieces])

    def answer(self) -> GrowingAnswer:
        return _ChatAnswer(self._provider)


class _ChatFunction(Lenient):
    name: str | None = None
    arguments: str | None = None


class _ChatCallDelta(Lenient):
    index: int | None = None
    id: str | None = None
    function: _ChatFunction | None = None
    extra_content: JsonObject | None = None


class _ChatDelta(Lenient):
    content: str | list[JsonValue] | None = None
    refusal: str | None = None
    reasoning: JsonValue = None
    reasoning_content: JsonValue = None
    tool_calls: list[_ChatCallDelta] | None = None


class _ChatChoice(Lenient):
    delta: _ChatDelta | None = None
    finish_reason: str | None = None


class _ChatInputDetails(Lenient):
    cached_tokens: int | None = None


class _ChatUsage(Lenient):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _ChatInputDetails | None = None


class _ChatChunk(Lenient):
    model: str | None = None
    choices: list[_ChatChoice] | None = None
    usage: _ChatUsage | None = None
    error: JsonValue = None


class _ChatAnswer:
    def __init__(self, provider: str) -> None:
        self.model: str | None = None
        self.usage: AnswerUsage | None = None
        self._provider = provider
        self._parts: list[GrowingText | GrowingCall] = []
        self._calls: dict[int, GrowingCall] = {}
        self._has_reason = False
        self._is_tagged = False

    @property
    def is_whole(self) -> bool:
        return self._has_reason

    def content(self) -> list[Part]:
        return [part for grown in self._parts if (part := grown.part(self._provider)) is not None]

    def add(self, data: bytes) -> str:
        if data == DONE:
            return ""
        chunk = decode_event(_ChatChunk, data)
        if chunk.error:
            raise ErrorEvent(data)
        self.model = chunk.model or self.model
        if chunk.usage is not None:
            self.usage = _usage(chunk.usage)
        if not chunk.choices or chunk.choices[0].delta is None:
            return ""
        choice = chunk.choices[0]
        if choice.finish_reason:
            self._has_reason = True
        delta = chunk.choices[0].delta
        for field, thought in (("reasoning", delta.reasoning), ("reasoning_content", delta.reasoning_content)):
            if isinstance(thought, str) and thought:
                self._text(is_thinking=True, opaque_id=field).pieces.append(thought)
                break
        if delta.refusal:
            self._has_reason = True
        said = self._said(_joined(delta.content))
        for call in delta.tool_calls or ():
            self._add_call(call)
        return said

    def _said(self, text: str) -> str:
        """Adds a piece of the text, or of a thought between tags, which some servers send in the text."""
        if not text:
            return ""
        if text.strip() == (CLOSING if self._is_tagged else OPENING):
            self._is_tagged = not self._is_tagged
            return ""
        self._text(is_thinking=self._is_tagged, opaque_id=TAGGED if self._is_tagged else None).pieces.append(text)
        return "" if self._is_tagged else text

    def _text(self, *, is_thinking: bool, opaque_id: str | None) -> GrowingText:
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, GrowingText) or (last.is_thinking, last.opaque_id) != (is_thinking, opaque_id):
            last = GrowingText(is_thinking=is_thinking, opaque_id=opaque_id)
            self._parts.append(last)
        return last

    def _add_call(self, delta: _ChatCallDelta) -> None:
        index = delta.index if delta.index is not None else max(self._calls, default=0)
        call = self._calls.get(index)
        if call is not None and delta.id and call.call_id and delta.id != call.call_id:
            index, call = max(self._calls) + 1, None  # a server that gives every call the same index, or none
        if call is None:
            call = self._calls[index] = GrowingCall()
            self._parts.append(call)
        call.call_id = delta.id or call.call_id
        call.details = {"extra_content": delta.extra_content} if delta.extra_content else call.details
        if delta.function is not None:
            call.name = call.name or delta.function.name or ""
            call.arguments.append(delta.function.arguments or "")


def _joined(content: str | list[JsonValue] | None) -> str:
    """The text of a delta; some servers send a list of parts."""
    if isinstance(content, list):
        texts = (part.get("text") if isinstance(part, dict) else part for part in content)
        return "".join(text for text in texts if isinstance(text, str))
    return content or ""


def _usage(usage: _ChatUsage) -> AnswerUsage:
    details = usage.prompt_tokens_details
    return AnswerUsage(
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        cache_read_tokens=(details.cached_tokens or 0) if details is not None else 0,
    )


def _piece(role: str, message: JsonObject) -> Piece:
    return Piece(role, msgspec.json.encode(message))
