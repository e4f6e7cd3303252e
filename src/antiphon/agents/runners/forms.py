"""The entries of a prompt in the forms that frameworks take."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, cast

from antiphon.agents.model import Prompt, PromptEntry, PromptText
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
    UserMessage,
    text_of,
)

MessageForm = Literal["openai", "responses", "parts"]


def messages_of(prompt: Prompt, form: MessageForm) -> list[JsonObject]:
    """The whole prompt, instructions first, in the order in which a model must read it.

    `openai`: messages of chat completions. `responses`: input items of the Responses API. `parts`: messages
    `{"role", "parts"}`, whose parts are `text`, `image`, `tool_call` and `tool_result`, for anything else.
    """
    entries: list[PromptEntry] = [*prompt.entries]
    if prompt.passing:
        entries.append(PromptText(text=prompt.passing))
    made = {"openai": _openai, "responses": _responses, "parts": _parts}[form]
    return made(prompt.instructions, entries)


def _openai(instructions: str, entries: Sequence[PromptEntry]) -> list[JsonObject]:
    messages: list[JsonObject] = [{"role": "system", "content": instructions}] if instructions else []
    ids = _CallIds()
    for entry in entries:
        match entry:
            case UserMessage(content=content):
                messages.append({"role": "user", "content": _content(content, _openai_part)})
            case PromptText(text=text):
                messages.append({"role": "user", "content": text})
            case AssistantMessage():
                message: JsonObject = {"role": "assistant", "content": entry.text or None}
                ids.begin(entry)
                if entry.calls:
                    message["tool_calls"] = [
                        {
                            "id": id,
                            "type": "function",
                            "function": {"name": part.name, "arguments": part.arguments},
                        }
                        for part, id in zip(entry.calls, ids.present, strict=True)
                    ]
                if entry.text or entry.calls:
                    messages.append(message)
            case ToolResult():
                messages.append(
                    {"role": "tool", "tool_call_id": ids.present[entry.call_index], "content": text_of(entry.content)}
                )
    return messages


def _responses(instructions: str, entries: Sequence[PromptEntry]) -> list[JsonObject]:
    items: list[JsonObject] = [{"role": "system", "content": instructions}] if instructions else []
    ids = _CallIds()
    for entry in entries:
        match entry:
            case UserMessage(content=content):
                items.append({"role": "user", "content": _content(content, _responses_part)})
            case PromptText(text=text):
                items.append({"role": "user", "content": text})
            case AssistantMessage():
                ids.begin(entry)
                if entry.text:
                    items.append({"role": "assistant", "content": entry.text})
                items.extend(
                    {"type": "function_call", "call_id": id, "name": part.name, "arguments": part.arguments}
                    for part, id in zip(entry.calls, ids.present, strict=True)
                )
            case ToolResult():
                items.append(
                    {
                        "type": "function_call_output",
                        "call_id": ids.present[entry.call_index],
                        "output": text_of(entry.content),
                    }
                )
    return items


def _parts(instructions: str, entries: Sequence[PromptEntry]) -> list[JsonObject]:
    messages: list[JsonObject] = []
    if instructions:
        messages.append({"role": "system", "parts": [{"type": "text", "text": instructions}]})
    ids = _CallIds()
    for entry in entries:
        match entry:
            case PromptText(text=text):
                messages.append({"role": "user", "parts": [{"type": "text", "text": text}]})
            case ToolResult():
                part: JsonObject = {
                    "type": "tool_result",
                    "id": ids.present[entry.call_index],
                    "name": entry.tool,
                    "text": text_of(entry.content),
                    "isError": entry.is_error,
                }
                messages.append({"role": "tool", "parts": [part]})
            case UserMessage(content=content):
                messages.append({"role": "user", "parts": [_part(part) for part in content]})
            case AssistantMessage(content=content):
                ids.begin(entry)
                unique = iter(ids.present)
                said = [
                    _part(part) | ({"id": next(unique)} if isinstance(part, ToolCallPart) else {})
                    for part in content
                    if not isinstance(part, ThinkingPart)  # a provider's own, which no other one takes
                ]
                if said:
                    messages.append({"role": "assistant", "parts": cast("list[JsonValue]", said)})
    return messages


class _CallIds:
    """Ids of calls that are unique in the whole conversation, and the same as it grows."""

    def __init__(self) -> None:
        self._used = Counter[str]()
        self.present: list[str] = []
        """Of the calls of the newest message."""

    def begin(self, message: AssistantMessage) -> None:
        self.present = [self._unique(part.call_id) for part in message.calls]

    def _unique(self, id: str) -> str:
        self._used[id] += 1
        return id if self._used[id] == 1 else f"{id}_{self._used[id]}"


def _content(content: tuple[Part, ...], made: Callable[[TextPart | ImagePart], JsonObject]) -> JsonValue:
    if all(isinstance(part, TextPart) for part in content):
        return text_of(content)
    return [made(part) for part in content if isinstance(part, TextPart | ImagePart)]


def _part(part: Part) -> JsonObject:
    match part:
        case TextPart(text=text):
            return {"type": "text", "text": text}
        case ImagePart():
            return {"type": "image", "mediaType": part.mime_type, "data": part.data}
        case ToolCallPart():
            return {"type": "tool_call", "id": part.call_id, "name": part.name, "arguments": part.arguments}
        case ThinkingPart():
            return {"type": "thinking", "text": part.text}


def _openai_part(part: TextPart | ImagePart) -> JsonObject:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": _data_url(part)}}


def _responses_part(part: TextPart | ImagePart) -> JsonObject:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    return {"type": "input_image", "image_url": _data_url(part)}


def _data_url(part: ImagePart) -> str:
    return f"data:{part.mime_type};base64,{part.data}"
