"""Anthropic's messages."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

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
    safe_name,
    tokens,
)
from antiphon.domain.message import (
    AssistantMessage,
    Cut,
    ImagePart,
    JsonObject,
    JsonValue,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResult,
)

BLANK: Final = "(a blank message)"
"""In the place of a message that older logs hold: the API refuses blank texts, and requests without messages."""
REDACTED: Final = "redacted_thinking"
CUTS: Final = {
    "max_tokens": Cut.LENGTH,
    "model_context_window_exceeded": Cut.LENGTH,
    "refusal": Cut.REFUSAL,
}


class AnthropicDialect:
    """Requests and streams of `/v1/messages`. Neighbouring messages of one role become one."""

    def __init__(self, provider: str) -> None:
        self._provider = provider

    def user(self, content: tuple[Part, ...]) -> Piece | None:
        return _piece(USER, _blocks(content) or [{"type": "text", "text": BLANK}])

    def assistant(self, message: AssistantMessage, call_ids: Sequence[str]) -> Piece | None:
        blocks: list[JsonValue] = []
        calls = iter(call_ids)
        for part in message.content:
            kept = kept_fields(part, self._provider)
            match part:
                case TextPart(text=text) if text.strip():
                    blocks.append({"type": "text", "text": text})
                case ThinkingPart() if kept is not None and kept.get("id") == REDACTED:
                    blocks.append({"type": "redacted_thinking", "data": kept.get("signature", "")})
                case ThinkingPart(text=text) if kept is not None and kept.get("signature"):
                    blocks.append({"type": "thinking", "thinking": text, "signature": kept["signature"]})
                case ToolCallPart(name=name, arguments=arguments):
                    sent = arguments_of(arguments)
                    blocks.append({"type": "tool_use", "id": next(calls), "name": safe_name(name), "input": sent})
                case _:
                    pass
        return _piece(ASSISTANT, blocks)

    def result(self, result: ToolResult, call_id: str) -> Piece:
        blocks = _blocks(result.content)
        block: JsonObject = {
            "type": "tool_result",
            "tool_use_id": call_id,
            "content": blocks,
            "is_error": result.is_error,
        }
        return Piece(USER, msgspec.json.encode(block))

    def join(self, pieces: Sequence[Piece], passing: str = "") -> bytes:
        if passing and (last := self.user((TextPart(text=passing),))) is not None:
            pieces = [*pieces[:-1], *map(_kept, pieces[-1:]), last]
        messages: list[bytes] = []
        for role, group in groupby(pieces, key=_role_of):
            blocks = b",".join([piece.content for piece in group])
            messages.append(b'{"role":"%s","content":[%s]}' % (role.encode(), blocks))
        return b",".join(messages)

    def answer(self) -> GrowingAnswer:
        return _AnthropicAnswer(self._provider)


def _kept(piece: Piece) -> Piece:
    """The piece as the end of what later requests begin with: the API then keeps everything up to there."""
    if piece.role != USER:
        return piece
    return Piece(USER, b'%s,"cache_control":{"type":"ephemeral"}}' % piece.content[:-1])


def _role_of(piece: Piece) -> str:
    return piece.role


def _blocks(content: tuple[Part, ...]) -> list[JsonValue]:
    blocks: list[JsonValue] = []
    for part in content:
        match part:
            case TextPart(text=text) if text.strip():  # the API refuses blank texts
                blocks.append({"type": "text", "text": text})
            case ImagePart(mime_type=mime_type, data=data):
                source: JsonObject = {"type": "base64", "media_type": mime_type, "data": data}
                blocks.append({"type": "image", "source": source})
            case _:
                pass
    return blocks


def _piece(role: str, blocks: list[JsonValue]) -> Piece | None:
    return Piece(role, msgspec.json.encode(blocks)[1:-1]) if blocks else None


class AnthropicUsage(Lenient):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None

    def after(self, before: AnswerUsage) -> AnswerUsage:
        """Later counts replace earlier ones; the last event often repeats only some of them."""
        read = tokens(self.cache_read_input_tokens, before.cache_read_tokens)
        written = tokens(self.cache_creation_input_tokens, before.cache_write_tokens)
        uncached = before.input_tokens - before.cache_read_tokens - before.cache_write_tokens
        return AnswerUsage(
            input_tokens=tokens(self.input_tokens, uncached) + read + written,
            output_tokens=tokens(self.output_tokens, before.output_tokens),
            cache_read_tokens=read,
            cache_write_tokens=written,
        )


class AnthropicMessage(Lenient):
    model: str | None = None
    usage: AnthropicUsage | None = None


class _AnthropicBlock(Lenient):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None


class _AnthropicDelta(Lenient):
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _AnthropicEvent(Lenient):
    """An event, or a whole message in the place of events."""

    model: str | None = None
    content: list[_AnthropicBlock] | None = None
    stop_reason: str | None = None
    type: str | None = None
    index: int | None = None
    message: AnthropicMessage | None = None
    content_block: _AnthropicBlock | None = None
    delta: _AnthropicDelta | None = None
    usage: AnthropicUsage | None = None


class _AnthropicAnswer(GrowingAnswer):
    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._blocks: dict[int, GrowingText | GrowingCall | None] = {}
        """Thoughts and calls by the index of their block; None for texts."""

    def add(self, data: bytes, *, is_whole_body: bool = False) -> str:
        if self.is_ended:
            return ""
        event = decode_event(_AnthropicEvent, data)
        match event.type:
            case "error":
                raise ErrorEvent(data)
            case "message":
                self.is_whole = self.is_ended = True
                self.model, self.cut = event.model, CUTS.get(event.stop_reason or "")
                self._count(event.usage)
                return "".join(self._begin_block(index, block) for index, block in enumerate(event.content or ()))
            case "message_stop":
                self.is_ended = True
            case "message_start" if event.message is not None:
                self.model = event.message.model
                self._count(event.message.usage)
            case "content_block_start" if event.content_block is not None:
                return self._begin_block(event.index or 0, event.content_block)
            case "content_block_delta" if event.delta is not None:
                return self._grow(event.index or 0, event.delta)
            case "message_delta":
                if event.delta is not None and event.delta.stop_reason:
                    self.is_whole, self.cut = True, CUTS.get(event.delta.stop_reason)
                self._count(event.usage)
            case _ if is_whole_body:
                raise ErrorEvent(data)
            case _:
                pass
        return ""

    def _begin_block(self, index: int, block: _AnthropicBlock) -> str:
        match block.type:
            case "text":
                self._blocks[index] = None
                return self._say(block.text or "")
            case "thinking":
                self._blocks[index] = self._begin(GrowingText(is_thinking=True))
                self._grow(index, _AnthropicDelta(thinking=block.thinking, signature=block.signature))
            case "redacted_thinking":
                self._blocks[index] = self._begin(GrowingText(is_thinking=True, opaque_id=REDACTED))
                self._grow(index, _AnthropicDelta(signature=block.data))
            case "tool_use":
                call = self._blocks[index] = self._begin(GrowingCall())
                self._unseen += 1
                arguments = msgspec.json.encode(block.input).decode() if block.input else ""
                call.grow(call_id=block.id or "", name=block.name or "", arguments=arguments)
            case _:
                pass
        return ""

    def _grow(self, index: int, delta: _AnthropicDelta) -> str:
        match self._blocks.get(index):
            case None:
                return self._say(delta.text) if delta.text and index in self._blocks else ""
            case GrowingText() as thought:
                grown = delta.thinking or ""
                thought.pieces.append(grown)
                thought.signatures.append(delta.signature or "")
                self._unseen += len(grown)
            case GrowingCall() as call:
                call.grow(arguments=delta.partial_json or "")
                self._unseen += len(delta.partial_json or "")
        return ""

    def _count(self, usage: AnthropicUsage | None) -> None:
        if usage is not None:
            self.usage = usage.after(self.usage or AnswerUsage())
