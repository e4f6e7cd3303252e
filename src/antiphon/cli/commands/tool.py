"""`antiphon tool`: call a tool as a session, or list the tools. Contract: cli 1, tools 1."""

from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.asking import Printed, asking, listed, session_key
from antiphon.cli.exits import ExitCode
from antiphon.domain.message import JsonObject

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client


MAX_TOOL_SECONDS = 660.0
_EXITS = {
    "error": ExitCode.FAILED,
    "forbidden": ExitCode.FAILED,
    "not_found": ExitCode.NOT_FOUND,
    "timeout": ExitCode.TIMEOUT,
}


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


def _check(*, name: str | None, arguments: str, idempotency_key: str | None, **_: object) -> None:
    from antiphon.domain.errors import Invalid

    if idempotency_key is not None and not idempotency_key.strip():
        raise Invalid("Idempotency key is empty. Give one, or leave --idempotency-key out.", code="usage")
    if name is not None:
        _object(arguments)


_show_tools = listed("tools", {"Tool": "name", "What it does": "description"})


def _show(called: tuple[str | None, JsonObject]) -> None:
    """The answer of the tool of that name; without one all tools."""
    from antiphon.cli.rendering.output import show_pretty

    name, answer = called
    if name is None:
        _show_tools(answer)
    else:
        show_pretty(answer)


@asking(_show, _check)
def call_tool(
    client: "Client",
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
) -> Printed:
    """Call a tool as a session, with the same rights and the same answer as its agent.

    antiphon tool sessions_send --as main '{"label": "research", "message": "Any news?"}'
    """
    if name is None:
        answer = client.get("/tools", sessionKey=None if session is None else session_key(client, session))
        return Printed(answer, (name, answer))
    key, given = session_key(client, session or "main"), _object(arguments)
    answer = client.call_tool(name, key, given, idempotency_key=idempotency_key, seconds=MAX_TOOL_SECONDS)
    return Printed(answer, (name, answer), _EXITS.get(str(answer.get("status")), ExitCode.OK))
