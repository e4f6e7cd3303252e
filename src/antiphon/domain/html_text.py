"""What a person sees of HTML, as text. Pure, for all channels."""

import re
from collections import Counter
from html.parser import HTMLParser

_UNSEEN = {"head", "style", "script", "title", "template", "noscript"}
_BLOCKS = {
    "p",
    "div",
    "br",
    "tr",
    "li",
    "ul",
    "ol",
    "table",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "pre",
    "hr",
    "section",
}
_VOID = {"br", "hr", "img", "meta", "link", "input", "wbr", "col", "area", "base"}
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?![.\d])|opacity\s*:\s*0(?![.\d])")
_RULE = re.compile(r"border-top\s*:(?!\s*(?:none|0)\b)")
_NO_TAG = re.compile(r"<(?!!)(?=[^<>]*(?:<|$))")
"""Begins no tag, for none ends before the next one begins."""
_DEEPEST = 20
"""Marks of quoting before a line."""


def text_of_html(html: str) -> str:
    """What a person sees of it, with `>` before quoted lines and the addresses behind linked words."""
    reader = _SeenText()
    try:
        reader.feed(_without_open_ends(html))
        reader.close()
    except (AssertionError, RecursionError, ValueError):
        pass  # broken markup: what was read until there
    return reader.text()


def _without_open_ends(html: str) -> str:
    """The library looks for the end of each tag and comment anew, so that many without one would take minutes."""
    ended = html.rfind("-->") + 1
    open_comment = html.find("<!--", ended)
    return _NO_TAG.sub("&lt;", html if open_comment < 0 else html[:open_comment])


class _SeenText(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._lines = [""]
        self._open: list[tuple[str, bool]] = []
        """Elements, and whether people see what is in them."""
        self._counts = Counter[str]()
        self._links: list[tuple[str, int]] = []
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag in _BLOCKS:
            self._break()
        if tag == "hr" or _RULE.search(found.get("style", "").lower()):
            self._divide()
        if tag == "li":
            self._lines[-1] += "- "
        if tag in _VOID:
            return
        is_seen = tag not in _UNSEEN and not _HIDDEN.search(found.get("style", "").lower()) and "hidden" not in found
        self._open.append((tag, is_seen and self._is_seen))
        self._counts[tag] += 1
        if tag == "blockquote":
            self._break()
            self._depth += 1
        elif tag == "a" and found.get("href", "").lower().startswith(("http://", "https://")):
            self._links.append((found["href"], len(self._lines[-1])))

    def handle_endtag(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._break()
        while self._counts[tag]:
            name, _ = self._open.pop()
            self._counts[name] -= 1
            if name == "blockquote":
                self._break()
                self._depth -= 1
            if name == tag:
                break
        if tag == "a" and self._links:
            address, begin = self._links.pop()
            if address not in self._lines[-1][begin:] and self._is_seen:
                self._lines[-1] += f" ({address})"

    def handle_data(self, data: str) -> None:
        if self._is_seen:
            words = re.sub(r"\s+", " ", data)
            self._lines[-1] += words.lstrip() if not self._lines[-1] or self._lines[-1].endswith(" ") else words

    @property
    def _is_seen(self) -> bool:
        return not self._open or self._open[-1][1]

    def _break(self) -> None:
        mark = "> " * min(self._depth, _DEEPEST)
        if self._lines[-1].strip():
            self._lines[-1] = mark + self._lines[-1].rstrip()
            self._lines.append("")

    def _divide(self) -> None:
        """Writes a rule as an empty line: programs draw one above what they repeat."""
        self._break()
        if len(self._lines) > 1 and self._lines[-2]:
            self._lines.append("")

    def text(self) -> str:
        self._break()
        return "\n".join(self._lines).strip()
