"""`antiphon sessions search`: names of sessions and words of messages, in two groups."""

from typing import Annotated

import typer

from antiphon.cli.commands.options import ConfigOption, CursorOption, HomeOption, JsonOption, LimitOption
from antiphon.cli.exits import command


@command
def search_sessions(
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help="Words that a result must all contain.")],
    limit: LimitOption = 20,
    cursor: CursorOption = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find sessions by name and messages by their words, newest first."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import show_json
    from antiphon.cli.rendering.search import show_found

    query = " ".join(words)
    with connect(home, config) as client:
        answer = client.get("/search", q=query, limit=limit, cursor=cursor)
    if as_json:
        show_json(answer)
    else:
        show_found(query, answer)
