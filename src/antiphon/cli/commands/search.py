"""`antiphon sessions search`: names of sessions and words of messages, in two groups."""

from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.asking import Printed, asking
from antiphon.cli.commands.options import CursorOption, LimitOption
from antiphon.domain.message import JsonObject

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client


def _show(found: tuple[str, JsonObject]) -> None:
    from antiphon.cli.rendering.search import show_found

    show_found(*found)


@asking(_show)
def search_sessions(
    client: "Client",
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help="Words that a result must all contain.")],
    limit: LimitOption = 20,
    cursor: CursorOption = None,
) -> Printed:
    """Find sessions by name and messages by their words, newest first."""
    query = " ".join(words)
    answer = client.get("/search", q=query, limit=limit, cursor=cursor)
    return Printed(answer, (query, answer))
