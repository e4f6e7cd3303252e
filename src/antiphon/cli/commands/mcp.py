"""`antiphon mcp`: the session tools for an outside agent, over standard input and output. Contract: tools 1."""

from typing import Annotated

import typer

from antiphon.cli.commands.options import ConfigOption, HomeOption
from antiphon.cli.exits import command


@command
def mcp(
    session: Annotated[str, typer.Option("--as", metavar="SESSION", help="The session that the agent acts as.")],
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Serve the session tools to an outside agent by MCP, on standard input and output.

    The agent starts this program itself: configure `antiphon mcp --as <session>` there as an MCP server.
    """
    from antiphon.cli.commands.mcp_server import serve
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import find_session

    with connect(home, config) as client:
        key = str(find_session(client, session)["key"])
        serve(client, key, home)
