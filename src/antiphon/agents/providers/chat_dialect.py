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
    tokens,
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

    def join(self, pieces: Sequence[Piece], passing: Piece | None = None) -> bytes:
        return b",".join([piece.content for piece in (pieces if passing is None else [*pieces, passing])])

    def answer(self) -> GrowingAnswer:
        return _ChatAnswer(self._provider)


class _ChatFunction(Lenient):
    name: str | None = None
    arguments: str | JsonObject | None = None


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


class _ChatAnswer(GrowingAnswer):
    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._calls: dict[int | None, GrowingCall] = {}
        """The newest call of each index."""
        self._is_tagged = False

    def add(self, data: bytes) -> str:
        if self.is_ended or data.startswith(DONE):
            self.is_ended = True
            return ""
        chunk = decode_event(_ChatChunk, data)
        if chunk.error:
            raise ErrorEvent(data)
        self.model = chunk.model or self.model
        if chunk.usage is not None:
            self._count(chunk.usage)
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        if choice.finish_reason:
            self.is_whole = True
        delta = choice.delta
        if delta is None:
            return ""
        for field, thought in (("reasoning", delta.reasoning), ("reasoning_content", delta.reasoning_content)):
            if isinstance(thought, str) and thought:
                self._text(is_thinking=True, opaque_id=field).pieces.append(thought)
                self._unseen += len(thought)
                break
        if delta.refusal:
            self.is_whole = True
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
        if not self._is_tagged:
            return text
        self._unseen += len(text)
        return ""

    def _text(self, *, is_thinking: bool, opaque_id: str | None) -> GrowingText:
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, GrowingText) or (last.is_thinking, last.opaque_id) != (is_thinking, opaque_id):
            last = self._begin(GrowingText(is_thinking=is_thinking, opaque_id=opaque_id))
        return last

    def _add_call(self, delta: _ChatCallDelta) -> None:
        function = delta.function or _ChatFunction()
        call = self._calls.get(delta.index)
        if call is None or _is_another(call, delta.id, function.name):
            call = self._calls[delta.index] = self._begin(GrowingCall())
        arguments = function.arguments or ""
        if not isinstance(arguments, str):
            arguments = msgspec.json.encode(arguments).decode()
        call.grow(call_id=delta.id or "", name=function.name or "", arguments=arguments)
        self._unseen += len(arguments)
        if delta.extra_content:
            call.details = {"extra_content": delta.extra_content}

    def _count(self, usage: _ChatUsage) -> None:
        before, details = self.usage or AnswerUsage(), usage.prompt_tokens_details or _ChatInputDetails()
        self.usage = AnswerUsage(
            input_tokens=tokens(usage.prompt_tokens, before.input_tokens),
            output_tokens=tokens(usage.completion_tokens, before.output_tokens),
            cache_read_tokens=tokens(details.cached_tokens, before.cache_read_tokens),
        )


def _is_another(call: GrowingCall, call_id: str | None, name: str | None) -> bool:
    """Whether a delta begins another call, from a server that gives every call the same index, or none."""
    if not name or not call.name:
        return False
    if call_id and call.call_id:
        return call_id != call.call_id
    return not call_id and not call.call_id and bool(call.arguments)


def _joined(content: str | list[JsonValue] | None) -> str:
    """The text of a delta; some servers send a list of parts."""
    if isinstance(content, list):
        texts = (part.get("text") if isinstance(part, dict) else part for part in content)
        return "".join(text for text in texts if isinstance(text, str))
    return content or ""


def _piece(role: str, message: JsonObject) -> Piece:
    return Piece(role, msgspec.json.encode(message))
