"""Commands that ask the gateway for one thing, and show the answer to people or to programs."""

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import typer

from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.exits import CommandFailed, ExitCode, command
from antiphon.domain.message import JsonObject

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client

Show: TypeAlias = Callable[[Any], None]
Cell: TypeAlias = str | Callable[[JsonObject], str]
"""What a column shows of a row: the field of that name, or what the function makes of the row."""


class Printed(NamedTuple):
    """What a command prints: the answer for programs, what `show` gets for people; and its exit code."""

    answer: JsonObject
    seen: object
    code: ExitCode = ExitCode.OK


Function: TypeAlias = Callable[..., JsonObject | Printed]
"""A function of a client and of the command's own arguments and options."""
_OPTIONS = tuple(
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
    for name, annotation, default in (
        ("home", HomeOption, None),
        ("config", ConfigOption, None),
        ("as_json", JsonOption, False),
    )
)
"""The options of every such command."""


def asking(show: Show, check: Callable[..., object] | None = None) -> Callable[[Function], Callable[..., None]]:
    """Makes a command of a function that asks a client; `show` gets the answer, or what is seen of it.

    `check` raises for what is misread in the command, before there is a connection.
    """

    def made(ask: Function) -> Callable[..., None]:
        def run(**given: Any) -> None:
            from antiphon.cli.connection.connect import connect
            from antiphon.cli.rendering.output import show_json

            home, config, as_json = (given.pop(each.name) for each in _OPTIONS)
            if check is not None:
                check(**given)
            with connect(home, config) as client:
                asked = ask(client, **given)
            answer, seen, code = asked if isinstance(asked, Printed) else Printed(asked, asked)
            if as_json:
                show_json(answer)
            else:
                show(seen)
            if code is not ExitCode.OK:
                raise CommandFailed(code)

        _, *own = inspect.signature(ask).parameters.values()
        parameters = [*own, *_OPTIONS]
        typed: Any = run
        typed.__name__, typed.__doc__ = ask.__name__, ask.__doc__
        typed.__signature__ = inspect.Signature(parameters)
        typed.__annotations__ = {each.name: each.annotation for each in parameters}
        return command(run)

    return made


class NounCommands(typer.Typer):
    """A group of commands about one noun."""

    def asks(
        self, name: str, show: Show, check: Callable[..., object] | None = None, **settings: Any
    ) -> Callable[[Function], Callable[..., None]]:
        """Enters a command, as `asking` makes it."""
        return lambda ask: self.command(name, **settings)(asking(show, check)(ask))


def listed(
    name: str,
    columns: Mapping[str, Cell],
    *,
    none: str | None = None,
    optional: str | None = None,
    is_last_cut_within: bool = False,
) -> Callable[[JsonObject | tuple[JsonObject, str]], None]:
    """Shows the rows of that name in an answer as a table; without any `none`, or the text beside the answer.

    The optional column is left out where no row has anything there.
    """

    def show_list(found: JsonObject | tuple[JsonObject, str]) -> None:
        from antiphon.cli.rendering.output import hint, show, show_table
        from antiphon.cli.rendering.rows import rows_of

        answer, empty = found if isinstance(found, tuple) else (found, none)
        rows = rows_of(answer, name)
        if not rows and empty is not None:
            hint(empty)
            return
        cells = {heading: [_text_of(row, cell) for row in rows] for heading, cell in columns.items()}
        if optional is not None and not any(cells[optional]):
            del cells[optional]
        lines = [[column[number] for column in cells.values()] for number in range(len(rows))]
        show_table([*cells], lines, is_last_cut_within=is_last_cut_within)
        if "nextCursor" in answer:
            show(f"To see more: --cursor {answer['nextCursor']}", "dim")

    return show_list


def _text_of(row: JsonObject, cell: Cell) -> str:
    if not isinstance(cell, str):
        return cell(row)
    return "" if row.get(cell) is None else str(row[cell])


def since(name: str) -> Callable[[JsonObject], str]:
    """How long ago the moment in that field was."""

    def shown(row: JsonObject) -> str:
        from antiphon.cli.rendering.output import ago

        return ago(row.get(name))

    return shown


def moment(name: str) -> Callable[[JsonObject], str]:
    """The local time in that field."""

    def shown(row: JsonObject) -> str:
        from antiphon.cli.rendering.output import clock_time

        return clock_time(row.get(name))

    return shown


def said(text: object) -> None:
    """Shows a line."""
    from antiphon.cli.rendering.output import show

    show(str(text))


def hinted(text: object) -> None:
    """Shows a line that says what to do next."""
    from antiphon.cli.rendering.output import hint

    hint(str(text))


def present(values: JsonObject) -> JsonObject:
    """Those that are given."""
    return {name: value for name, value in values.items() if value is not None}


def quoted(name: str) -> str:
    """The name as a segment of a path."""
    from urllib.parse import quote

    return quote(name, safe="")


def session_key(client: "Client", name: str) -> str:
    """The key of the session that people name so."""
    from antiphon.cli.connection.names import find_session

    return str(find_session(client, name)["key"])


def path_to(client: "Client", name: str, rest: str = "") -> str:
    """The path of what belongs to the session that people name so."""
    from antiphon.cli.connection.client import session_path

    return session_path(session_key(client, name), rest)
