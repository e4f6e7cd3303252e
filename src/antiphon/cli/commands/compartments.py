"""`antiphon compartments`: names for data that belongs together. Contract: flow 1."""

from typing import Annotated

import typer

from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.exits import command

app = typer.Typer(no_args_is_help=True, help="List and create compartments, which classifications may name.")


@app.command("list")
@command
def list_compartments(home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List compartments in the order of their creation."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import show_json, show_table
    from antiphon.cli.rendering.rows import rows_of

    with connect(home, config) as client:
        answer = client.get("/compartments")
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
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import show, show_json

    with connect(home, config) as client:
        answer = client.post("/compartments", {"name": name})
    if as_json:
        show_json(answer)
    else:
        show(f"Compartment {answer['name']} can be used in classifications now.")
