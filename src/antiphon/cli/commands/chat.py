"""`antiphon chat`: a conversation in the terminal, or one message and its reply."""

import sys
from typing import Annotated

import typer

from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption, SessionArgument
from antiphon.cli.exits import CommandFailed, ExitCode, command, exit_code_of_run
from antiphon.cli.streams import read_input


@command
def chat(
    session: SessionArgument = "main",
    message: Annotated[
        str | None,
        typer.Option(
            "--message", "-m", metavar="TEXT", help="Send this (- for standard input), print the reply, and exit."
        ),
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="AGENT", help="The session's agent.")] = None,
    new: Annotated[bool, typer.Option("--new", help="Create the session if it does not exist.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", metavar="SECONDS", min=0, help="With one message: the longest wait; the turn continues."
        ),
    ] = None,
    config: ConfigOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Talk with an agent.

    Without -m and without text on standard input, it starts a conversation: /help lists commands, Ctrl-C cancels
    a turn, and Ctrl-D leaves. The session stays.
    """
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import find_session, open_session
    from antiphon.domain.errors import Invalid
    from antiphon.domain.invisible import is_blank

    if message == "-" or (message is None and not sys.stdin.isatty()):
        message = read_input()
    if message is not None and is_blank(message):
        raise Invalid("Message is empty. Give it with -m, or on standard input.", code="empty_message")
    if message is None and as_json:
        raise Invalid("A conversation has no JSON output. Give a message with -m.", code="usage")
    with connect(home, config) as client:
        row = open_session(client, session, agent) if new else find_session(client, session, agent)
        if message is None:
            from antiphon.cli.chat.prompt import converse

            converse(client, row)
            return
        from antiphon.cli.chat.one_shot import say_once

        run = say_once(client, str(row["key"]), message, timeout, as_json=as_json)
    if (code := exit_code_of_run(str(run["status"]))) is not ExitCode.OK:
        raise CommandFailed(code)
