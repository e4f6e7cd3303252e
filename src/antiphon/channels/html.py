"""The Markdown of models, and Antiphon's own texts, as HTML for programs that show some of it. Pure."""

from collections.abc import Sequence
from functools import cache
from html import escape, unescape

from markdown_it import MarkdownIt

from antiphon.domain.own_text import CodeSpan

LONGEST_HTML = 24_000
"""Characters, beside which the text itself stands."""


@cache
def _markdown() -> MarkdownIt:
    """Without HTML of the text's own, and without pictures, which would be fetched from servers that a reply names."""
    return MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"]).disable("image")


def render(markdown: str) -> str | None:
    """The HTML; None if nothing in the text is marked, or if it would be too long."""
    html = _markdown().render(markdown).strip()
    is_plain = unescape(html) == f"<p>{markdown.strip()}</p>"
    return None if is_plain or len(html) > LONGEST_HTML else html


def verbatim(text: str, spans: Sequence[CodeSpan]) -> str | None:
    """The text as it is, whatever stands in it; only the spans are code."""
    pieces, at = list[str](), 0
    for span in spans:
        tags = ("<pre><code>", "</code></pre>") if span.is_block else ("<code>", "</code>")
        code = escape(text[span.start : span.end])
        pieces += [_lines(text[at : span.start]), tags[0], code, tags[1]]
        at = span.end
    html = "".join([*pieces, _lines(text[at:])])
    return html if spans and len(html) <= LONGEST_HTML else None


def _lines(text: str) -> str:
    return escape(text).replace("\n", "<br>")
