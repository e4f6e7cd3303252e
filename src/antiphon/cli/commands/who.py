"""`antiphon who`: the sessions that are at work right now, and the running processes."""

from typing import TYPE_CHECKING

from antiphon.cli.commands.asking import asking
from antiphon.cli.commands.options import LimitOption
from antiphon.domain.message import JsonObject

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client


def _show(answer: JsonObject) -> None:
    from antiphon.cli.rendering.output import show_lines
    from antiphon.cli.rendering.trees import work_lines

    show_lines(work_lines(answer))


@asking(_show)
def who(client: "Client", limit: LimitOption = 50) -> JsonObject:
    """Show the sessions at work: what each one does, for how long, and what it waits for."""
    return client.get("/who", limit=limit)
