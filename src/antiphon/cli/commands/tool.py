"""`antiphon tool`: call a tool as a session, or list the tools. Contract: cli 1, tools 1."""

from typing import Annotated

import typer

from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.exits import CommandFailed, ExitCode, command
from antiphon.domain.message import JsonObject

MAX_TOOL_SECONDS = 660.0
_EXITS = {
    "error": ExitCode.FAILED,
    "forbidden": ExitCode.FAILED,
    "not_found": ExitCode.NOT_FOUND,
    "timeout": ExitCode.TIMEOUT,
}


@command
def call_tool(
    name: Annotated[
        str | None, typer.Argument(metavar="TOOL", help="The tool; without it, all tools are listed.")
    ] = None,
    arguments: Annotated[str, typer.Argument(metavar="JSON", help="The arguments, a JSON object.")] = "{}",
    session: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="SESSION",
            help="The session to act as: 'main' (default), a key or an id. Without TOOL, lists its tools.",
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", metavar="KEY", help="Makes the call safe to repeat.")
    ] = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Call a tool as a session, with the same rights and the same answer as its agent.

    antiphon tool sessions_send --as main '{"label": "research", "message": "Any news?"}'
    """
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import find_session
    from antiphon.cli.rendering.output import show_json, show_pretty
    from antiphon.domain.errors import Invalid

    if idempotency_key is not None and not idempotency_key.strip():
        raise Invalid("Idempotency key is empty. Give one, or leave --idempotency-key out.", code="usage")
    if name is None:
        _list(session, home, config, as_json=as_json)
        return
    given = _object(arguments)
    with connect(home, config) as client:
        key = str(find_session(client, session or "main")["key"])
        answer = client.call_tool(name, key, given, idempotency_key=idempotency_key, seconds=MAX_TOOL_SECONDS)
    if as_json:
        show_json(answer)
    else:
        show_pretty(answer)
    status = answer.get("status")
    if isinstance(status, str) and status in _EXITS:
        raise CommandFailed(_EXITS[status])


def _list(session: str | None, home: HomeOption, config: ConfigOption, *, as_json: bool) -> None:
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import find_session
    from antiphon.cli.rendering.output import show_json, show_table
    from antiphon.cli.rendering.rows import rows_of

    with connect(home, config) as client:
        key = None if session is None else str(find_session(client, session)["key"])
        answer = client.get("/tools", sessionKey=key)
    if as_json:
        show_json(answer)
        return
    rows = rows_of(answer, "tools")
    show_table(["Tool", "What it does"], [[str(row["name"]), str(row["description"])] for row in rows])


def _object(text: str) -> JsonObject:
    import json
    from typing import cast

    from antiphon.cli.streams import check_unicode
    from antiphon.domain.errors import Invalid

    try:
        value = json.loads(text)
    except ValueError as error:
        raise Invalid(f"Arguments are not JSON: {error}. Write an object in single quotes.", code="not_json") from error
    if not isinstance(value, dict):
        raise Invalid("Arguments are not a JSON object. Write one such as '{\"limit\": 5}'.", code="not_json")
    given = cast(JsonObject, value)
    for name, part in given.items():
        check_unicode(f"Argument {name!r}", part if isinstance(part, str) else json.dumps(part, ensure_ascii=False))
    return given
