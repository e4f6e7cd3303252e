"""`antiphon compartments`: names for data that belongs together. Contract: flow 1."""

from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.exits import command
from antiphon.domain.message import JsonObject

app = typer.Typer(no_args_is_help=True, help="List and create compartments, which classifications may name.")


@app.command("list")
@command
def list_compartments(home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List compartments in the order of their creation."""
    from antiphon.cli.rendering.output import show_json, show_table
    from antiphon.cli.rendering.rows import rows_of

    answer = _answer(home, config, None)
    if as_json:
        show_json(answer)
        return
    show_table(["Compartment"], [[str(row["name"])] for row in rows_of(answer, "compartments")])


@app.command("add")
@command
def add_compartment(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of a-z, 0-9 and _ . : @ + -, beginning with a-z or 0-9.")
    ],
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a compartment. Its name is never reused."""
    from antiphon.cli.rendering.output import show, show_json

    answer = _answer(home, config, name)
    if as_json:
        show_json(answer)
    else:
        show(f"Compartment {answer['name']} can be used in classifications now.")


def _answer(home_option: Path | None, config_option: Path | None, name: str | None) -> JsonObject:
    """All compartments, or the new one with the name. Asks the gateway if one has the home open."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.gateway_file import find_gateway
    from antiphon.cli.connection.home import config_of, home_of

    home = home_of(home_option)
    config = config_of(home, config_option)
    if find_gateway(home) is not None:
        with connect(home, config_option) as client:
            return client.get("/compartments") if name is None else client.post("/compartments", {"name": name})
    from antiphon.cli.homes.compartments import use_compartments
    from antiphon.domain.actor import OWNER
    from antiphon.wire import compartments as wire
    from antiphon.wire.encoding import plain_json

    if name is None:
        return plain_json(wire.compartment_list(use_compartments(home, config, lambda them: them.list(OWNER))))
    return plain_json(wire.compartment(use_compartments(home, config, lambda them: them.create(OWNER, name)), name))
