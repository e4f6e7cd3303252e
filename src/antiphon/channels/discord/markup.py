"""How texts are written for Discord: agents' Markdown as it is, Antiphon's own text so that nothing in it is markup."""

import re
from collections.abc import Sequence
from typing import Final

from antiphon.channels.discord.settings import LONGEST_TEXT
from antiphon.domain.channel_form import Button, DeliveryPart
from antiphon.domain.own_text import CodeSpan

MOST_IN_ROW: Final = 5
LONGEST_LABEL: Final = 80
SECONDARY: Final = 2
"""The style of buttons."""
_MARKS: Final = re.compile(r"[\\*_~`|\[<]")
_BEGINNINGS: Final = re.compile(r"^([ \t]*\d*)([>#+.-])", re.MULTILINE)
"""What makes a quote, a heading or a list at the beginning of a line."""
UNFENCED: Final = "`\u02cb"
"""In place of marks within code that would end it."""


def drawn(part: DeliveryPart) -> str:
    """The content of the message. Own text for which the marks leave no room is sent without them."""
    if part.spans is None:
        return part.text
    text = _verbatim(part.text, part.spans)
    return text if len(text) <= LONGEST_TEXT else part.text


def _verbatim(text: str, spans: Sequence[CodeSpan]) -> str:
    pieces, begin = list[str](), 0
    for span in spans:
        pieces += [_escaped(text[begin : span.start]), _code(text[span.start : span.end], is_block=span.is_block)]
        begin = span.end
    return "".join([*pieces, _escaped(text[begin:])])


def _escaped(text: str) -> str:
    return _BEGINNINGS.sub(r"\1\\\2", _MARKS.sub(r"\\\g<0>", text))


def _code(text: str, *, is_block: bool) -> str:
    """No fence of its own may end it."""
    if is_block:
        return f"```\n{text.replace('```', f'{UNFENCED}`')}\n```"
    return f"`` {text.replace('``', UNFENCED)} ``" if "`" in text else f"`{text}`"


def rows_of(buttons: Sequence[Button]) -> list[dict[str, object]]:
    """The buttons as components, in rows."""
    keys: list[dict[str, object]] = [
        {"type": 2, "style": SECONDARY, "label": each.label[:LONGEST_LABEL], "custom_id": each.data} for each in buttons
    ]
    return [{"type": 1, "components": keys[at : at + MOST_IN_ROW]} for at in range(0, len(keys), MOST_IN_ROW)]
