"""Texts as blocks of Slack, and as the Markdown that Slack renders itself. Pure.

In blocks nothing that a model writes is a mention, a link or markup unless it is marked as such here.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from antiphon.channels.markup import DrawnText, StyledSpan
from antiphon.domain.channel_form import Button

Block = dict[str, object]

_MASS = re.compile(r"@(?=(?:here|channel|everyone)\b)", re.IGNORECASE)
_CONTROL = re.compile(r"<(?=[!@#])")
_BREAK = "\u2060"
"""A word joiner: nobody sees it, and no mention goes on behind it."""
_STYLES = {"bold": "bold", "italic": "italic", "strikethrough": "strike", "code": "code"}
LONGEST_LABEL = 75
"""Characters of a button's label."""


def escape(text: str) -> str:
    """The text, in which nothing is a control sequence of Slack."""
    return _MASS.sub(f"@{_BREAK}", text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def defuse(markdown: str) -> str:
    """Markdown that Slack renders itself, in which nothing mentions anybody."""
    return _MASS.sub(f"@{_BREAK}", _CONTROL.sub(f"<{_BREAK}", markdown))


def blocks_of(drawn: DrawnText, buttons: Sequence[Button]) -> list[Block]:
    """The text with its spans, and the buttons below."""
    blocks: list[Block] = [{"type": "rich_text", "elements": list(_elements(drawn))}]
    keys = [
        {"type": "button", "action_id": f"button_{number}", "value": each.data, "text": _label(each.label)}
        for number, each in enumerate(buttons)
    ]
    return [*blocks, {"type": "actions", "elements": keys}] if keys else blocks


def _label(text: str) -> Block:
    return {"type": "plain_text", "text": text[:LONGEST_LABEL]}


def _elements(drawn: DrawnText) -> Iterator[Block]:
    """Sections of running text, and blocks of code between them."""
    units, begin = drawn.text.encode("utf-16-le", "surrogatepass"), 0
    for code in [*(each for each in drawn.spans if each.kind == "pre"), None]:
        end = len(units) // 2 if code is None else code.offset
        pieces = list(_pieces(units, drawn.spans, begin, end))
        if pieces:
            yield {"type": "rich_text_section", "elements": pieces}
        if code is not None:
            begin = code.offset + code.length
            yield {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": _cut(units, end, begin)}]}


def _pieces(units: bytes, spans: Sequence[StyledSpan], begin: int, end: int) -> Iterator[Block]:
    """The stretches in which the same spans hold."""
    edges = {place for each in spans for place in (each.offset, each.offset + each.length) if begin < place < end}
    for start, stop in pairwise(sorted({begin, *edges, end})):
        over = [each for each in spans if each.offset <= start < each.offset + each.length]
        piece: Block = {"type": "text", "text": _cut(units, start, stop)}
        if (url := next((each.url for each in over if each.url), None)) is not None:
            piece |= {"type": "link", "url": url}
        if style := {_STYLES[each.kind]: True for each in over if each.kind in _STYLES}:
            piece["style"] = style
        yield piece


def _cut(units: bytes, start: int, stop: int) -> str:
    return units[start * 2 : stop * 2].decode("utf-16-le", "replace")
