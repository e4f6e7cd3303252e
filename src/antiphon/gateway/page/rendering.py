"""The page's templates, and answers made of them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup
from starlette.responses import HTMLResponse

from antiphon.domain.approval import ACCEPT_BUTTON, TRUST_AND_SEND, TRUST_BUTTON, VERDICTS
from antiphon.domain.text import compact, exact, plain
from antiphon.gateway.page.assets import HEADERS, asset
from antiphon.gateway.page.entries import PageEntry
from antiphon.gateway.page.listing import Item
from antiphon.program import public_path

if TYPE_CHECKING:
    from jinja2 import Environment


_WORDS: Mapping[str, object] = {
    "verdicts": VERDICTS,
    "trust_button": TRUST_BUTTON,
    "trust_and_send": TRUST_AND_SEND,
    "accept_button": ACCEPT_BUTTON,
}


def render(template: str, values: Mapping[str, object]) -> Markup:
    """The filled template. Every value in it is escaped, unless it is `Markup`."""
    return Markup(_templates().get_template(template).render(values, program=public_path(), **_WORDS))


def html_response(template: str, values: Mapping[str, object], *, status: int = 200) -> HTMLResponse:
    """The filled template as an answer that no cache keeps."""
    return HTMLResponse(render(template, values), status, headers={**HEADERS, "Cache-Control": "no-store"})


def entry_html(entry: PageEntry) -> str:
    """An entry of a transcript."""
    return str(render("entry.html", {"entry": entry}))


def dollars(microusd: int | None) -> str:
    """Money to the cent; smaller sums to a hundredth of a cent."""
    if microusd is None:
        return "unknown"
    return f"${microusd / 1_000_000:.2f}" if microusd >= 10_000 or microusd == 0 else f"${microusd / 1_000_000:.4f}"


def sum_of(tokens: int, microusd: int | None) -> str:
    """Usage, short: money if the price is known, else tokens; nothing if there is none."""
    if microusd is not None:
        return dollars(microusd)
    return f"{compact(tokens)} tokens" if tokens else ""


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


def _sessions(count: int) -> str:
    return f"{count:,} session{'' if count == 1 else 's'}"


def _spent(item: Item) -> str:
    """The session's usage."""
    return sum_of(item.tokens, item.cost_microusd)


def _all_spent(item: Item) -> str:
    """The usage of the session and its descendants."""
    return sum_of(item.all_tokens, item.all_cost_microusd)


@cache
def _templates() -> "Environment":
    # A gateway whose page nobody opens does without: 2 MB.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("antiphon.gateway.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    templates.filters |= {
        "asset": asset,
        "plain": plain,
        "exact": exact,
        "dollars": dollars,
        "spent": _spent,
        "all_spent": _all_spent,
        "sessions": _sessions,
        "count": "{:,}".format,
        "moment": _moment,
    }
    return templates
