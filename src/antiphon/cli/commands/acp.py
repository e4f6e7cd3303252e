"""`antiphon acp`: sessions for editors, over standard input and output. Contract: foreign_agents 2."""

import os
from typing import Annotated

import typer

from antiphon.cli.commands.options import ConfigOption, HomeOption
from antiphon.cli.exits import command

TOKEN_VARIABLE = "ANTIPHON_TOKEN"


@command
def acp(
    session: Annotated[
        str | None, typer.Option("--as", metavar="SESSION", help="The only session that the editor gets.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="AGENT", help="The agent of the editor's new sessions.")
    ] = None,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Serve sessions to an editor by the Agent Client Protocol, on standard input and output.

    The editor starts this program itself: configure `antiphon acp` there as an agent. It acts as the owner of the
    home, or as the person whose token is in ANTIPHON_TOKEN.
    """
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.home import home_of
    from antiphon.domain.errors import Invalid

    token = os.environ.get(TOKEN_VARIABLE)
    if token is not None and not token.strip():
        raise Invalid(
            f"{TOKEN_VARIABLE} is empty. Set a person's token, or unset it to act as the owner.", code="usage"
        )
    if session is not None and agent is not None and session.lower() != "main":
        raise Invalid("Give --as or --agent: a session has its agent already.", code="usage")
    try:
        from antiphon.cli.acp.agent import WantedSessions
        from antiphon.cli.acp.serving import serve
    except ModuleNotFoundError as error:
        raise Invalid(
            f"Editors need a package that is not installed ({error.name}). Install antiphon[acp].",
            code="package_missing",
        ) from error
    with connect(home, config) as client:
        wanted = WantedSessions(session=session, agent=agent)
        serve(client, home_of(home), None if token is None else token.strip(), wanted)
