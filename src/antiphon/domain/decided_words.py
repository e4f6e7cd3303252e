"""Messages as prompts show them once rules have decided about them. Contract: flow 9."""

from typing import TypeVar

from msgspec.structs import replace

from antiphon.domain.decided import BLOCK, CutOut, DecidedEntry, cut
from antiphon.domain.message import AssistantMessage, Citation, Part, TextPart, ToolResult, UserMessage, text_content

MessageT = TypeVar("MessageT", bound=UserMessage | AssistantMessage | ToolResult)


def texts_of(message: UserMessage | AssistantMessage | ToolResult) -> dict[int, str]:
    """The texts that rules look at, by `DecidedPart.index`."""
    found = {index: part.text for index, part in enumerate(message.content) if isinstance(part, TextPart)}
    if isinstance(message, UserMessage):
        found |= {-1 - index: each.text for index, each in enumerate(message.cites)}
    return found


def as_decided(message: MessageT, decided: DecidedEntry) -> MessageT:
    """The message without what rules took out of it, or with a note in the place of all that it says."""
    if decided.action == BLOCK:
        note = text_content(f"[blocked: {', '.join(decided.rules)}]")
        if isinstance(message, UserMessage):
            return replace(message, content=note, cites=())
        return replace(message, content=note)
    taken = {each.index: each.stretches for each in decided.parts}
    content = tuple(_part(part, taken.get(index, ())) for index, part in enumerate(message.content))
    if isinstance(message, UserMessage):
        cites = tuple(_cited(each, taken.get(-1 - index, ())) for index, each in enumerate(message.cites))
        return replace(message, content=content, cites=cites)
    return replace(message, content=content)


def _part(part: Part, stretches: tuple[CutOut, ...]) -> Part:
    return replace(part, text=cut(part.text, stretches)) if stretches and isinstance(part, TextPart) else part


def _cited(cited: Citation, stretches: tuple[CutOut, ...]) -> Citation:
    return replace(cited, text=cut(cited.text, stretches)) if stretches else cited
