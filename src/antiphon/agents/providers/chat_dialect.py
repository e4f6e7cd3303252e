"""OpenAI's chat completions, which most providers speak."""

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, cast

import msgspec

from antiphon.agents.providers.dialect import (
    ASSISTANT,
    TAGGED,
    TOOL,
    USER,
    AnswerUsage,
    ErrorEvent,
    GrowingAnswer,
    GrowingCall,
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
    text_of,
)

OPENING, CLOSING = "<think>", "</think>"
DONE: Final = b"[DONE]"
CUTS: Final = {
    "length": Cut.LENGTH,
    "max_tokens": Cut.LENGTH,
    "model_length": Cut.LENGTH,
    "model_context_window_exceeded": Cut.LENGTH,
    "content_filter": Cut.FILTER,
    "content_filtered": Cut.FILTER,
    "safety": Cut.FILTER,
    "recitation": Cut.FILTER,
    "blocklist": Cut.FILTER,
    "prohibited_content": Cut.FILTER,
    "sensitive": Cut.FILTER,
    "refusal": Cut.REFUSAL,
}
"""Reasons for an end, in lower case, other than that the model was done."""
CALLING: Final = "calling"
"""The role of an assistant's message with more than its text."""
_PLAIN: Final = ("role", "content")
_HEADS: Final = {role: b'{"role":"%s","content":' % role.encode() for role in (USER, ASSISTANT)}
_GAP: Final = b"\\n\\n"
"""A blank line within a text of JSON."""
_TEXT_END: Final = b'"}'
_INTERRUPTED: Final = b'{"role":"assistant","content":"[The next message came before an answer.]"}'
"""Stands between a tool's result and a message: templates such as Mistral's refuse a request without it."""
FAILED: Final = frozenset({"error", "insufficient_system_resource", "network_error", "abort"})
"""Reasons that are errors of the provider."""


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
                        "function": {
                            "name": safe_name(name),
                            "arguments": msgspec.json.encode(arguments_of(arguments)).decode(),
                        },
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
        return _piece(ASSISTANT if len(sent) == len(_PLAIN) else CALLING, sent)

    def result(self, result: ToolResult, call_id: str) -> Piece:
        return _piece(TOOL, {"role": "tool", "tool_call_id": call_id, "content": text_of(result.content)})

    def join(self, pieces: Sequence[Piece], passing: str = "") -> bytes:
        before = pieces[-1].role if pieces else ""
        messages = _alternating(pieces)
        if passing:
            words = self.user((TextPart(text=passing),)).content
            if before == USER:
                messages[-1] = _as_one(USER, [messages[-1], words])
            elif before == TOOL:
                messages[-1] = b"%s%s%s" % (messages[-1][: -len(_TEXT_END)], _GAP, words[len(_HEADS[USER]) + 1 :])
            else:
                messages.append(words)
        return b",".join(messages)

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
    message: _ChatDelta | None = None
    finish_reason: str | None = None
    error: JsonValue = None


class _ChatInputDetails(Lenient):
    cached_tokens: int | None = None


class ChatUsage(Lenient):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _ChatInputDetails | None = None

    def after(self, before: AnswerUsage) -> AnswerUsage:
        """Later counts replace earlier ones."""
        details = self.prompt_tokens_details or _ChatInputDetails()
        return AnswerUsage(
            input_tokens=tokens(self.prompt_tokens, before.input_tokens),
            output_tokens=tokens(self.completion_tokens, before.output_tokens),
            cache_read_tokens=tokens(details.cached_tokens, before.cache_read_tokens),
        )


class _ChatChunk(Lenient):
    model: str | None = None
    choices: list[_ChatChoice] | None = None
    usage: ChatUsage | None = None
    error: JsonValue = None
    object: str | None = None
    detail: JsonValue = None


class _ChatAnswer(GrowingAnswer):
    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._calls: dict[int | None, GrowingCall] = {}
        """The newest call of each index."""

    def add(self, data: bytes, *, is_whole_body: bool = False) -> str:
        if self.is_ended or data.startswith(DONE):
            self.is_ended = True
            return ""
        chunk = decode_event(_ChatChunk, data)
        if chunk.error:
            raise ErrorEvent(msgspec.json.encode({"error": chunk.error}))
        if not chunk.choices and (is_whole_body or chunk.object == "error" or chunk.detail):
            raise ErrorEvent(data)
        self.model = chunk.model or self.model
        if chunk.usage is not None:
            self.usage = chunk.usage.after(self.usage or AnswerUsage())
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        if choice.finish_reason or choice.error or is_whole_body:
            self._note_end(choice, is_whole_body=is_whole_body)
        delta = choice.delta or choice.message
        if delta is None:
            return ""
        if delta.reasoning or delta.reasoning_content:
            self._note_thought(delta)
        content = delta.content
        said = self._say(content if isinstance(content, str) else self._joined(content)) if content else ""
        if delta.refusal:
            self.is_whole, self.cut = True, Cut.REFUSAL
            said += self._say(delta.refusal)
        for call in delta.tool_calls or ():
            self._add_call(call)
        return said

    def _note_end(self, choice: _ChatChoice, *, is_whole_body: bool) -> None:
        reason = choice.finish_reason
        if choice.error or (reason and reason.lower() in FAILED):
            raise ErrorEvent(msgspec.json.encode({"error": choice.error or f"the answer ended with {reason!r}"}))
        if reason:
            self.is_whole, self.cut = True, CUTS.get(reason.lower(), self.cut)
        elif is_whole_body:
            self.is_whole = True

    def _note_thought(self, delta: _ChatDelta) -> None:
        for field, thought in (("reasoning", delta.reasoning), ("reasoning_content", delta.reasoning_content)):
            if isinstance(thought, str) and thought:
                self._think(thought, field)
                break

    def _joined(self, content: list[JsonValue]) -> str:
        """The text of a delta from one of the servers that send a list of parts, thoughts among them."""
        texts: list[str] = []
        for part in content:
            if isinstance(part, dict) and part.get("type") == "thinking":
                thought = part.get("thinking")
                words = self._joined(thought) if isinstance(thought, list) else thought
                self._think(words if isinstance(words, str) else "", TAGGED)
                continue
            text = part.get("text") if isinstance(part, dict) else part
            texts.append(text if isinstance(text, str) else "")
        return "".join(texts)

    def _add_call(self, delta: _ChatCallDelta) -> None:
        function = delta.function or _ChatFunction()
        call = self._calls.get(delta.index)
        if call is None or _is_another(call, delta.id, function.name):
            call = self._calls[delta.index] = self._begin(GrowingCall())
            self._unseen += 1
        arguments = function.arguments or ""
        if not isinstance(arguments, str):
            arguments = msgspec.json.encode(arguments).decode()
        call.grow(call_id=delta.id or "", name=function.name or "", arguments=arguments)
        self._unseen += len(arguments)
        if delta.extra_content:
            call.details = {"extra_content": delta.extra_content}


def _is_another(call: GrowingCall, call_id: str | None, name: str | None) -> bool:
    """Whether a delta begins another call, from a server that gives every call the same index, or none."""
    if not name or not call.name:
        return False
    if call_id and call.call_id:
        return call_id != call.call_id
    return not call_id and not call.call_id and bool(call.arguments)


def _alternating(pieces: Sequence[Piece]) -> list[bytes]:
    """Neighbours of one role as one message, and words of ours between a tool's result and a user's message."""
    messages: list[bytes] = []
    before = ""
    for role, group in groupby(pieces, key=attrgetter("role")):
        contents = [piece.content for piece in group]
        if (before, role) == (TOOL, USER):
            messages.append(_INTERRUPTED)
        messages += [_as_one(role, contents)] if role in _HEADS else contents
        before = role
    return messages


def _as_one(role: str, messages: Sequence[bytes]) -> bytes:
    """One message with the contents of all; each is nothing but its role and its content."""
    if len(messages) == 1:
        return messages[0]
    head = _HEADS[role]
    contents = [message[len(head) : -1] for message in messages]
    if all(content.startswith(b'"') for content in contents):
        return b'%s"%s"}' % (head, _GAP.join([content[1:-1] for content in contents]))
    return b"%s[%s]}" % (head, b",".join(map(_parts, contents)))


def _parts(content: bytes) -> bytes:
    """The parts of a content, without brackets."""
    return content[1:-1] if content.startswith(b"[") else b'{"type":"text","text":%s}' % content


def _piece(role: str, message: JsonObject) -> Piece:
    return Piece(role, msgspec.json.encode(message))
