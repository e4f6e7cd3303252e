"""Texts as blocks of Slack, and as the Markdown that Slack renders itself. Pure.

In blocks nothing that a model writes is a mention, a link or markup unless it is marked as such here.
"""

import re
from collections.abc import Sequence
from typing import Any

from antiphon.channels.markup import DrawnText, styled_texts
from antiphon.domain.channel_form import Button

Block = dict[str, Any]

_MASS = re.compile(r"(?<!\w)@(?=[hce])", re.IGNORECASE)
"""Before `here`, `channel` and `everyone`; told by one letter, so that a text that grows is broken alike."""
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
    """Markdown that Slack renders itself, in which nothing mentions anybody. What grows begins as it began."""
    return _MASS.sub(f"@{_BREAK}", _CONTROL.sub(f"<{_BREAK}", markdown))


def blocks_of(drawn: DrawnText, buttons: Sequence[Button]) -> list[Block]:
    """The text with its spans, and the buttons below."""
    parts = list[Block]()
    for each in styled_texts(drawn):
        kind = "rich_text_preformatted" if "pre" in each.kinds else "rich_text_section"
        if not parts or parts[-1]["type"] != "rich_text_section" or kind != "rich_text_section":
            parts.append({"type": kind, "elements": []})
        styles = {_STYLES[kind]: True for kind in sorted(each.kinds & _STYLES.keys())}
        piece: Block = {"type": "text"} if each.url is None else {"type": "link", "url": each.url}
        parts[-1]["elements"].append({**piece, "text": each.text, **({"style": styles} if styles else {})})
    texts = [{"type": "plain_text", "text": each.label[:LONGEST_LABEL]} for each in buttons]
    keys = [
        {"type": "button", "action_id": f"button_{number}", "value": each.data, "text": texts[number]}
        for number, each in enumerate(buttons)
    ]
    return [{"type": "rich_text", "elements": parts}, *([{"type": "actions", "elements": keys}] if keys else [])]
