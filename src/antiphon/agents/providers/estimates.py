"""Tokens of a request and an answer that nobody counted. Contract: runs 6."""

from collections.abc import Iterable
from typing import Final

from antiphon.agents.model import Prompt
from antiphon.agents.providers.conversation import Conversation
from antiphon.domain.message import ImagePart, Part, TextPart, ThinkingPart, ToolCallPart

BYTES_PER_TOKEN: Final = 3
IMAGE_TOKENS: Final = 1_000


def estimated_input(conversation: Conversation, definitions_bytes: int, prompt: Prompt) -> int:
    """About how many tokens the request has: its texts, calls, definitions of tools, and images."""
    beside = len(prompt.instructions.encode()) + len(prompt.passing.encode()) + definitions_bytes
    return (conversation.text_bytes + beside) // BYTES_PER_TOKEN + conversation.images * IMAGE_TOKENS


def estimated_output(content: Iterable[Part]) -> int:
    """About how many tokens the answer has: at least one, unless it is empty."""
    size = 0
    for part in content:
        match part:
            case TextPart(text=text) | ThinkingPart(text=text):
                size += len(text.encode())
            case ToolCallPart(name=name, arguments=arguments):
                size += len(name) + len(arguments.encode())
            case ImagePart():
                size += IMAGE_TOKENS * BYTES_PER_TOKEN
    return -(-size // BYTES_PER_TOKEN)
