"""Markdown as HTML that can do nothing: no raw HTML, no images, and links that lead out openly."""

from collections.abc import Iterable
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

LONGEST = 16 * 1024
"""Characters; a longer text is shown as it is, because it is rendered between two deliveries."""
MOST_BRACKETS = 500
"""Each is looked for its end in the rest of its paragraph; a text with more of them is shown as it is."""
MOST_CELLS = 4_000
"""Rows times columns: a short row is filled up to as many cells as the table's first has."""
LINK_SCHEMES = ("http://", "https://", "mailto:")

_without_tables = (
    MarkdownIt("commonmark", {"html": False, "breaks": True})
    .enable(["strikethrough"])
    .disable(["image", "html_block", "html_inline"])
)
_with_tables = (
    MarkdownIt("commonmark", {"html": False, "breaks": True})
    .enable(["table", "strikethrough"])
    .disable(["image", "html_block", "html_inline"])
)


@lru_cache(maxsize=64)
def html_from_markdown(text: str) -> Markup:
    """Safe to put into a page, whoever wrote the text; what would take long to render is shown as it is."""
    if len(text) > LONGEST or text.count("[") > MOST_BRACKETS:
        return Markup('<div class="plain">{}</div>').format(escape(text))
    markdown = _with_tables if _cells(text) <= MOST_CELLS else _without_tables
    tokens = markdown.parse(text)
    _tame(tokens)
    return Markup(markdown.renderer.render(tokens, markdown.options, {}))


def _cells(text: str) -> int:
    """The most that a table of this text can have, if all its lines were rows."""
    bars = [line.count("|") for line in text.splitlines()]
    return (max(bars, default=0) + 1) * sum(1 for count in bars if count) if any(bars) else 0


def _tame(tokens: Iterable[Token]) -> None:
    for token in tokens:
        _tame(token.children or ())
        if token.type == "link_open":
            _tame_link(token)
        elif style := token.attrs.pop("style", None):
            # The page's policy allows no style attributes.
            token.attrs["class"] = str(style).replace("text-align:", "align-")


def _tame_link(token: Token) -> None:
    if not str(token.attrs.get("href", "")).lower().startswith(LINK_SCHEMES):
        token.attrs.pop("href", None)
        return
    token.attrs["target"] = "_blank"
    token.attrs["rel"] = "noopener noreferrer nofollow"
