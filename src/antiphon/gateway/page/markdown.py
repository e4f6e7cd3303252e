"""Markdown as inert HTML: no raw HTML, no images, and only web and mail links, opened in a new tab."""

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

LONGEST = 16 * 1024
"""Characters. Rendering blocks deliveries, so a longer text is shown unrendered."""
MOST_BRACKETS = 500
"""For each bracket the rest of its paragraph is searched; a text with more of them is shown unrendered."""
MOST_CELLS = 4_000
"""Rows times columns: short rows are padded to the width of the first."""
LINK_SCHEMES = ("http://", "https://", "mailto:")


@lru_cache(maxsize=64)
def html_from_markdown(text: str) -> Markup:
    """Safe in a page, even if the author is hostile. A text that would take long to render is shown unrendered."""
    if len(text) > LONGEST or text.count("[") > MOST_BRACKETS:
        return Markup('<div class="plain">{}</div>').format(escape(text))
    markdown = _markdown(has_tables=_cells(text) <= MOST_CELLS)
    tokens = markdown.parse(text)
    _tame(tokens)
    return Markup(markdown.renderer.render(tokens, markdown.options, {}))


@cache
def _markdown(*, has_tables: bool) -> "MarkdownIt":
    from markdown_it import MarkdownIt  # not before a page shows a text

    rules = ["table", "strikethrough"] if has_tables else ["strikethrough"]
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True})
    return markdown.enable(rules).disable(["image", "html_block", "html_inline"])


def _cells(text: str) -> int:
    """The most cells that a table of this text can have, if all its lines were rows."""
    bars = [line.count("|") for line in text.splitlines()]
    return (max(bars, default=0) + 1) * sum(1 for count in bars if count) if any(bars) else 0


def _tame(tokens: "Iterable[Token]") -> None:
    for token in tokens:
        _tame(token.children or ())
        if token.type == "link_open":
            _tame_link(token)
        elif style := token.attrs.pop("style", None):
            # The page's policy allows no style attributes.
            token.attrs["class"] = str(style).replace("text-align:", "align-")


def _tame_link(token: "Token") -> None:
    if not str(token.attrs.get("href", "")).lower().startswith(LINK_SCHEMES):
        token.attrs.pop("href", None)
        return
    token.attrs["target"] = "_blank"
    token.attrs["rel"] = "noopener noreferrer nofollow"
