"""What a person writes in an editor, as a message of a session."""

from collections.abc import Sequence
from typing import TypeAlias

from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
)
from msgspec import Struct

from antiphon.cli.acp.errors import refused
from antiphon.domain.message import JsonObject
from antiphon.domain.text import shown_name

Block: TypeAlias = (
    TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
)


LONGEST_COMMAND = 10_000
"""Characters, as the gateway takes them."""


class QuotedFile(Struct, frozen=True, kw_only=True):
    """A file that the editor puts beside the message: not the person's words."""

    name: str
    """Its address, as the editor gives it."""
    text: str


class WrittenPrompt(Struct, frozen=True, kw_only=True):
    content: list[JsonObject]
    """The parts of the person's own message."""
    quotes: list[QuotedFile]

    @property
    def command(self) -> str | None:
        """The text of a prompt that may be a command: a slash begins it, it is short and alone."""
        match self.content:
            case [{"type": "text", "text": str(text)}] if text.startswith("/") and not self.quotes:
                return text.strip() if len(text) <= LONGEST_COMMAND else None
            case _:
                return None


def read_prompt(blocks: Sequence[Block]) -> WrittenPrompt:
    """Raises `RequestError` for what messages cannot hold."""
    prompt = WrittenPrompt(content=[], quotes=[])
    for block in blocks:
        _add(prompt, block)
    if not prompt.content:
        raise refused("Prompt is empty: it has no text, image or link.", "empty_message")
    return prompt


def _add(prompt: WrittenPrompt, block: Block) -> None:
    match block:
        case TextContentBlock():
            if block.text:
                prompt.content.append({"type": "text", "text": block.text})
        case ImageContentBlock():
            prompt.content.append(_image(block.mime_type, block.data))
        case ResourceContentBlock():
            # A link is named: nothing of the editor's is read.
            prompt.content.append({"type": "text", "text": f"[{shown_name(block.name)}]({shown_name(block.uri)})"})
        case EmbeddedResourceContentBlock():
            _add_resource(prompt, block)
        case AudioContentBlock():
            raise refused("Prompt holds audio, which messages cannot hold. Send text.", "unsupported_content")


def _add_resource(prompt: WrittenPrompt, block: EmbeddedResourceContentBlock) -> None:
    found = block.resource
    if not isinstance(found, BlobResourceContents):
        prompt.quotes.append(QuotedFile(name=found.uri, text=found.text))
        prompt.content.append({"type": "text", "text": f"[{shown_name(found.uri)}]"})
    elif (found.mime_type or "").startswith("image/"):
        prompt.content.append(_image(found.mime_type or "", found.blob))
    else:
        raise refused(
            f"Prompt holds a file that is neither text nor an image: {shown_name(found.uri)}. Leave it out.",
            "unsupported_content",
        )


def _image(mime_type: str, data: str) -> JsonObject:
    return {"type": "image", "mimeType": mime_type, "data": data}
