"""Answers as bytes, in the two forms that providers speak."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from tests.world.server import Answer

Dialect: TypeAlias = str
"""`openai` or `anthropic`."""
Json: TypeAlias = Mapping[str, Any]
FINE: Final = "Fine."
DIALECTS: Final[Sequence[Dialect]] = ("openai", "anthropic")
COUNTED: Final = {"prompt_tokens": 100, "completion_tokens": 7}


def event(value: Json, name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()


def chunk(
    content: str | None = None, *, finish: str | None = None, usage: Json | None = None, **delta: Any
) -> dict[str, Any]:
    """A piece of a streamed chat completion."""
    choice = {
        "index": 0,
        "delta": {**({} if content is None else {"content": content}), **delta},
        "finish_reason": finish,
    }
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]} | (
        {} if usage is None else {"usage": usage}
    )


DONE: Final = b"data: [DONE]\n\n"


def chat(*pieces: str, finish: str = "stop", usage: Json | None = COUNTED, **delta: Any) -> Answer:
    """A streamed chat completion; `delta` has more fields for the last piece."""
    return Answer(
        [
            event(chunk("", role="assistant")),
            *(event(chunk(piece)) for piece in pieces),
            *([event(chunk(**delta))] if delta else []),
            event(chunk(finish=finish)),
            *([] if usage is None else [event({"object": "chat.completion.chunk", "choices": [], "usage": usage})]),
            DONE,
        ]
    )


def chat_call(name: str, arguments: str = "{}", call_id: str = "x1", **more: Any) -> Answer:
    call = {"index": 0, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return chat(finish=more.pop("finish", "tool_calls"), tool_calls=[call], **more)


def completion(text: str, *, finish: str | None = "stop", usage: Json | None = COUNTED, **message: Any) -> bytes:
    """A chat completion that is not streamed."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
    return json.dumps(
        {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice]}
        | ({} if usage is None else {"usage": usage})
    ).encode()


def messages(
    *blocks: tuple[Json, Sequence[Json]], stop: str | None = "end_turn", usage: Json | None = None
) -> list[bytes]:
    """The events of a streamed message of Anthropic."""
    usage = {"input_tokens": 100, "output_tokens": 1} if usage is None else usage
    start: Json = {"id": "msg", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    events: list[Json] = [{"type": "message_start", "message": start}]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    if stop is not None:
        output = {"output_tokens": 7} if usage else {}
        events.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": output})
        events.append({"type": "message_stop"})
    return [event(each, each["type"]) for each in events]


def text_block(*pieces: str) -> tuple[Json, Sequence[Json]]:
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]


def message_whole(*blocks: Json, stop: str = "end_turn") -> bytes:
    return json.dumps(
        {
            "id": "msg",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": list(blocks),
            "stop_reason": stop,
            "usage": {"input_tokens": 100, "output_tokens": 7},
        }
    ).encode()


def said(dialect: Dialect, *pieces: str, cut: str | None = None) -> Answer:
    """A streamed answer with that text, in the dialect's form; `cut` is its word for the end."""
    if dialect == "openai":
        return chat(*pieces, finish=cut or "stop")
    return Answer(messages(text_block(*pieces), stop=cut or "end_turn"))


def called(dialect: Dialect, name: str, arguments: str = "{}") -> Answer:
    """A streamed call of a tool, in the dialect's form."""
    if dialect == "openai":
        return chat_call(name, arguments)
    block: Json = {"type": "tool_use", "id": "x1", "name": name, "input": {}}
    return Answer(messages((block, [{"type": "input_json_delta", "partial_json": arguments}]), stop="tool_use"))


def refused(status: int, body: Any, *, kind: str = "application/json", **headers: str) -> Answer:
    """A refusal; `body` is sent as JSON unless it is a text."""
    text = body if isinstance(body, str) else json.dumps(body)
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return Answer([text.encode()], status, kind, headers=named)


def error(message: str, **more: Any) -> dict[str, Any]:
    """OpenAI's form of an error."""
    return {"error": {"message": message, **more}}


def anthropic_error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}
