"""Messages as another session's agent may read them: redacted, cut, without images. Contract: history 3, list 4."""

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.message import AssistantMessage, ImagePart, Message, Part, TextPart, ThinkingPart, ToolCallPart
from antiphon.domain.redaction import redact_beginning

MAX_CHARACTERS = 4_000
"""Of one text, before the mark."""
CUT_MARK = "\n…(cut)…"
MAX_SHOWN = 128 * 1024
"""All texts together: more than any page accepts, so that the page shows a placeholder for the message."""


class Excerpt(Struct, frozen=True):
    message: Message
    was_cut: bool
    was_redacted: bool


def excerpt(message: Message) -> Excerpt:
    """The message with secrets redacted, then long texts cut. Of images only the size remains.

    The cost depends on the result, not on the length of the texts.
    """
    was_cut = was_redacted = False
    room = MAX_SHOWN
    parts: list[Part] = []

    def shorten(text: str) -> str:
        nonlocal was_cut, was_redacted, room
        clean = redact_beginning(text, MAX_CHARACTERS)
        was_redacted |= clean.was_redacted
        room -= len(clean.text)
        if clean.is_whole:
            return clean.text
        was_cut = True
        return clean.text + CUT_MARK

    for part in message.content:
        if room <= 0:
            was_cut = True
            break
        match part:
            case TextPart():
                parts.append(TextPart(text=shorten(part.text)))
            case ToolCallPart():
                parts.append(ToolCallPart(call_id=part.call_id, name=part.name, arguments=shorten(part.arguments)))
            case ImagePart():
                was_cut = True
                parts.append(part)
            case ThinkingPart():
                pass
    shown = replace(message, content=tuple(parts))
    if isinstance(shown, AssistantMessage) and shown.model is not None:
        shown = replace(shown, model=None)
    return Excerpt(shown, was_cut, was_redacted)
