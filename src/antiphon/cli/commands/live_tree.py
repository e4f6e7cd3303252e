"""A tree of sessions, redrawn as it changes."""

from collections.abc import Callable, Iterator

from rich.console import Group
from rich.live import Live
from rich.text import Text

from antiphon.cli.connection.client import Client
from antiphon.cli.rendering.output import console, show_json, show_lines, styled, tell
from antiphon.cli.rendering.trees import cut_lines, tree_lines
from antiphon.domain.message import JsonObject

FOLLOW_SECONDS = 1.0


def follow_tree(client: Client, path: str, *, include_inactive: bool, limit: int, as_json: bool) -> None:
    """Redraws the tree in place on a terminal; elsewhere writes it after each change."""

    def read(tell: Callable[[str], None]) -> Iterator[JsonObject]:
        return client.poll(path, pause_seconds=FOLLOW_SECONDS, tell=tell, includeInactive=include_inactive, limit=limit)

    shown: JsonObject = {}
    if console().is_terminal and not as_json:
        with Live(console=console(), auto_refresh=False) as live:

            def draw(note: str = "") -> None:
                notes = [styled(note, "yellow")] if note else []
                lines = tree_lines(shown, height=console().height - len(notes)) if shown else []
                live.update(Group(*lines, *cut_lines(notes)), refresh=True)

            for answer in read(draw):
                shown = answer
                draw()
        return
    for answer in read(tell):
        if answer != shown:
            shown = answer
            if as_json:
                show_json(answer)
            else:
                show_lines([*tree_lines(answer), Text()])
