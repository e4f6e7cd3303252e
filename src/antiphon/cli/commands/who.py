"""`antiphon who`: the sessions that are at work right now, and the running processes."""

from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption, LimitOption
from antiphon.cli.exits import command


@command
def who(
    limit: LimitOption = 50, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show the sessions at work: what each one does, for how long, and what it waits for."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import show_json, show_lines
    from antiphon.cli.rendering.trees import work_lines

    with connect(home, config) as client:
        answer = client.get("/who", limit=limit)
    if as_json:
        show_json(answer)
    else:
        show_lines(work_lines(answer))
