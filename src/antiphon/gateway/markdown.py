"""Markdown as HTML that can do nothing: no raw HTML, no images, and links that lead out openly."""

from collections.abc import Iterable

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

LONGEST = 60_000
"""Characters; a longer text is shown as it is, because it is rendered between two deliveries."""
LINK_SCHEMES = ("http://", "https://", "mailto:")

_markdown = (
    MarkdownIt("commonmark", {"html": False, "breaks": True})
    .enable(["table", "strikethrough"])
    .disable(["image", "html_block", "html_inline"])
)


def html_from_markdown(text: str) -> Markup:
    """Safe to put into a page, whoever wrote the text."""
    if len(text) > LONGEST:
        return Markup('<div class="plain">{}</div>').format(escape(text))
    tokens = _markdown.parse(text)
    _tame(tokens)
    return Markup(_markdown.renderer.render(tokens, _markdown.options, {}))


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
