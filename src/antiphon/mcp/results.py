"""The result of a server's tool, as text for a model."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock

MAX_CHARACTERS = 50_000
"""About 12,000 tokens: more would push the conversation out of most context windows."""


def text_of_result(result: "CallToolResult") -> str:
    """The texts of the result, then its structured content unless a text repeats it; cut to `MAX_CHARACTERS`."""
    texts = [text for block in result.content if (text := _text_of_block(block))]
    structured: Any = result.structured_content
    if structured is not None and not _repeats(texts, structured):
        texts.append(json.dumps(structured, ensure_ascii=False, separators=(",", ":")))
    return cut("\n".join(texts))


def cut(text: str, most: int = MAX_CHARACTERS) -> str:
    """The text, or its beginning and a mark that says how much is missing."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[cut here: {most} of {len(text)} characters]"


def _text_of_block(block: "ContentBlock") -> str:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return f"[{block.type}, {block.mime_type}, {_size(block.data)} bytes]"
        case "resource":
            resource = block.resource
            text = getattr(resource, "text", None)
            if isinstance(text, str):
                return text
            return f"[resource, {resource.mime_type or 'of no type'}, {_size(getattr(resource, 'blob', ''))} bytes]"
        case "resource_link":
            return f"[resource {block.uri}]"


def _size(base64: str) -> int:
    return len(base64.rstrip("=")) * 3 // 4


def _repeats(texts: Sequence[str], structured: Any) -> bool:
    """Whether one text repeats the structured content; a bare value is wrapped as `result` there."""
    wrapped: Any = structured["result"] if list(structured) == ["result"] else structured
    if len(texts) != 1:
        return False
    if texts[0] == wrapped:
        return True
    try:
        value: Any = json.loads(texts[0])
    except (ValueError, RecursionError):
        return False
    return value in (structured, wrapped)
